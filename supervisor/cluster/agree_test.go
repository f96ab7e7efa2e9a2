package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster"
)

// silent is a bucket for which nobody answers at first, and then somebody is too late.
type silent struct {
	jetstream.KeyValue
	asked bool
}

func (s *silent) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	if !s.asked {
		s.asked = true
		return nil, nats.ErrNoResponders
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Where nobody has answered for a bucket, that is the error, and not that time has run out: who knows it opens the bucket anew.
func TestReadOfWhatIsGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := cluster.Read(ctx, &silent{}, "worker"); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody has answered, and the error is %v", err)
	}
	if _, err := cluster.Read(ctx, &silent{asked: true}, "worker"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("somebody was slow, and the error is %v", err)
	}
}
