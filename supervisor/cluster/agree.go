package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster/tunnel"
)

// noReplicas is what a NATS of one server says of more than one replica (JSStreamReplicasNotSupportedErr).
const noReplicas = 10074

// OpenBucket opens what the machines of a cluster agree on, and makes it if there is none: on so many machines as the configuration says, or on one if NATS
// has one server alone. It waits for a majority of them, as long as ctx lasts.
func OpenBucket(ctx context.Context, js jetstream.JetStream, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	bucket, err := js.CreateOrUpdateKeyValue(ctx, config)
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == noReplicas {
		config.Replicas = 1
		bucket, err = js.CreateOrUpdateKeyValue(ctx, config)
	}
	return bucket, err
}

// readAgainEvery is between two tries to read what no machine answers for.
const readAgainEvery = 20 * time.Millisecond

// Read reads a key of a bucket, as a machine that keeps the bucket knows it: that may be a moment behind. Just after the bucket was made, or while those machines start,
// none answers: it waits for one then, as long as ctx lasts.
func Read(ctx context.Context, bucket jetstream.KeyValue, key string) (jetstream.KeyValueEntry, error) {
	for none := error(nil); ; {
		entry, err := bucket.Get(ctx, key)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			if none = err; ratelimit.Sleep(ctx, readAgainEvery) == nil {
				continue
			}
		case err != nil && ctx.Err() != nil && none != nil: // it ended as it was asked once more
			err = none
		}
		return entry, err
	}
}

// ErrChanged says that something that was to be changed is not as it was said to be.
var ErrChanged = errors.New("another machine has changed it")

// Agree does something that the machines have to agree on, within a bounded time. The error is [ErrNoQuorum] without a majority of them, and where bucket is nil,
// or [ErrChanged]. After any other it is not known what became of it.
func Agree(ctx context.Context, bucket jetstream.KeyValue, do func(context.Context, jetstream.KeyValue) error) error {
	if bucket == nil {
		return ErrNoQuorum
	}
	asked, cancel := context.WithTimeout(ctx, agreePatience)
	defer cancel()
	err := do(asked, bucket)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return ErrChanged
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: %w", ErrNoQuorum, tunnel.ErrNoServer)
	case ctx.Err() == nil && (asked.Err() != nil || errors.Is(err, jetstream.ErrNoStreamResponse)):
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	return err
}
