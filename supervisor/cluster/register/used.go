package register

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster"
)

// UsedFor is for how long what was used is remembered.
const UsedFor = 11 * time.Minute

// ErrUsed says that something was used before.
var ErrUsed = errors.New("it was used before")

// Use uses texts, each once in the whole cluster within [UsedFor], in their order up to the first that was used before: [ErrUsed]. Without a majority
// it is [cluster.ErrNoQuorum]. After any other error it is not known which of them are used.
func (r *Register) Use(ctx context.Context, texts []string) error {
	used, err := r.openUsed(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", cluster.ErrNoQuorum, err)
	}
	for _, text := range texts {
		name := sha256.Sum256([]byte(text))
		err := cluster.Agree(ctx, used, func(ctx context.Context, b jetstream.KeyValue) error {
			_, err := b.Create(ctx, hex.EncodeToString(name[:]), nil)
			return err
		})
		if errors.Is(err, cluster.ErrChanged) {
			return ErrUsed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Register) openUsed(ctx context.Context) (jetstream.KeyValue, error) {
	return r.open(ctx, &r.used, jetstream.KeyValueConfig{
		Bucket: "nexus_" + r.o.Cluster + "_used", Description: "what may be used once", Replicas: r.o.Replicas, Storage: jetstream.FileStorage, TTL: UsedFor,
	})
}
