package replicated

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster/accepted"
	"nexus.internal/supervisor/cluster/clustertest"
)

// The lists are asked for again soon while nobody leads the machines, whatever says so, and seldom once they are refused for good: a machine that has just started takes over
// agents, and has to know what was accepted.
func TestListsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	for _, m := range farm[1:] {
		m.Stop()
	}
	var answered bool // it was not only silence
	for began := time.Now(); !answered && time.Since(began) < time.Minute; {
		ctx, cancel := context.WithTimeout(t.Context(), openPatience)
		_, err := accepted.Open(ctx, farm[0].JetStream, "farm", 3)
		answered = ctx.Err() == nil
		cancel()
		if err == nil || afterRefusal(err) != openEvery {
			t.Fatalf("a machine alone is told %v, and waits %v", err, afterRefusal(err))
		}
	}
	if !answered {
		t.Error("a machine alone is never refused, but has to wait")
	}
	for err, want := range map[error]time.Duration{
		context.DeadlineExceeded:                    openEvery,
		&jetstream.APIError{Code: 503}:              openEvery,
		&jetstream.APIError{Code: 400}:              openSeldom,
		errors.New("nats: no response from stream"): openEvery,
	} {
		if got := afterRefusal(err); got != want {
			t.Errorf("after %v it waits %v, want %v", err, got, want)
		}
	}
}
