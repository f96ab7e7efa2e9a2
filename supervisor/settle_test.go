package supervisor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestSettle(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a, b := h.start("alice"), h.start("bob")
		start := time.Now()
		if err := h.sup.Settle(h.Context()); err != nil || since(start) != 0 {
			h.Errorf("without turns: %v after %v", err, since(start))
		}
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		other := h.prompt(b, "1", "")
		short, cancel := context.WithTimeout(h.Context(), 500*time.Millisecond)
		defer cancel()
		if err := h.sup.Settle(short); !errors.Is(err, context.DeadlineExceeded) || since(start) != 500*time.Millisecond {
			h.Errorf("with little time: %v after %v", err, since(start))
		}
		if err := h.sup.Settle(h.Context()); err != nil || since(start) != 2*time.Second {
			h.Errorf("with time: %v after %v", err, since(start))
		}
		for _, turn := range []*supervisor.Turn{running, waiting, other} {
			h.outcome(turn, supervisor.Completed)
		}
	})
}
