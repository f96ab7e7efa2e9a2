package register

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

const (
	// droppedFor is for how long is kept that a name was given up.
	droppedFor = time.Hour
	// takeTries bounds how often a name is tried to be had that another holder has, until that one is known here.
	takeTries = 25
)

// Take gives a name to holder, a text that is not empty and no JSON object, if none holds it in the whole cluster, and is what holds it then: [cluster.Unreadable] if that has a
// later format than this program reads. Without a majority the error is [cluster.ErrNoQuorum]; after any other it is not known who holds it.
func (r *Register) Take(ctx context.Context, name, holder string) (has string, err error) {
	bucket, err := r.openHeld(ctx)
	if err != nil {
		return "", err
	}
	for range takeTries {
		err = cluster.Agree(ctx, bucket, func(ctx context.Context, b jetstream.KeyValue) error {
			_, err := b.Create(ctx, heldKey(name), []byte(holder))
			return err
		})
		if !errors.Is(err, cluster.ErrChanged) {
			return holder, err
		}
		// The machine that answers may not know yet who holds it, or it was given up meanwhile.
		if has, _, err = r.holder(ctx, bucket, name); err != nil || has != "" {
			return has, err
		}
		if err := ratelimit.Sleep(ctx, retryEvery); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("take %s: %w: nobody says who has it", name, cluster.ErrNoQuorum)
}

// Holder is what holds a name, as it was a moment ago; "" if nothing did. The errors are those of Take.
func (r *Register) Holder(ctx context.Context, name string) (has string, err error) {
	bucket, err := r.openHeld(ctx)
	if err != nil {
		return "", err
	}
	has, _, err = r.holder(ctx, bucket, name)
	return has, err
}

// Drop gives up a name that holder holds; it is no error if another one does, or if that holder has it is not known here yet: then it stays. The errors are
// those of Take.
func (r *Register) Drop(ctx context.Context, name, holder string) error {
	bucket, err := r.openHeld(ctx)
	if err != nil {
		return err
	}
	has, revision, err := r.holder(ctx, bucket, name)
	if err != nil || has != holder || has == cluster.Unreadable {
		return err
	}
	err = cluster.Agree(ctx, bucket, func(ctx context.Context, b jetstream.KeyValue) error {
		return b.Purge(ctx, heldKey(name), jetstream.LastRevision(revision), jetstream.PurgeTTL(droppedFor))
	})
	if errors.Is(err, cluster.ErrChanged) {
		return nil
	}
	return err
}

// holder is what the machine knows that answers: any of those that keep the bucket, which may be a moment behind.
func (r *Register) holder(ctx context.Context, bucket jetstream.KeyValue, name string) (has string, revision uint64, err error) {
	err = cluster.Agree(ctx, bucket, func(ctx context.Context, b jetstream.KeyValue) error {
		entry, err := cluster.Read(ctx, b, heldKey(name))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		has, revision = string(entry.Value()), entry.Revision()
		if r.o.Later.Note(format.Held.Check(entry.Value())) != nil {
			has = cluster.Unreadable
		}
		return nil
	})
	return has, revision, err
}

// heldKey is a name as a key of the bucket: a name may have any letters.
func heldKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func (r *Register) openHeld(ctx context.Context) (jetstream.KeyValue, error) {
	held, err := r.open(ctx, &r.held, jetstream.KeyValueConfig{
		Bucket: "nexus_" + r.o.Cluster + "_held", Description: "names that one machine holds", Replicas: r.o.Replicas, Storage: jetstream.FileStorage,
		LimitMarkerTTL: droppedFor,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrNoQuorum, err)
	}
	return held, nil
}
