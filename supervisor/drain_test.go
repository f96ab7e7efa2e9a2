package supervisor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestWaitIdle(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a, b := h.start("alice"), h.start("bob")
		start := time.Now()
		if err := h.sup.WaitIdle(h.Context()); err != nil || since(start) != 0 {
			h.Errorf("without turns: %v after %v", err, since(start))
		}
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		other := h.prompt(b, "1", "")
		short, cancel := context.WithTimeout(h.Context(), 500*time.Millisecond)
		defer cancel()
		if err := h.sup.WaitIdle(short); !errors.Is(err, context.DeadlineExceeded) || since(start) != 500*time.Millisecond {
			h.Errorf("with little time: %v after %v", err, since(start))
		}
		if err := h.sup.WaitIdle(h.Context()); err != nil || since(start) != 2*time.Second {
			h.Errorf("with time: %v after %v", err, since(start))
		}
		for _, turn := range []*supervisor.Turn{running, waiting, other} {
			h.outcome(turn, supervisor.Completed)
		}
	})
}

// Once everything is refused, what waits ends and what runs goes on, and nothing
// takes its place: not even the same turn after a crash.
func TestStopAccepting(t *testing.T) {
	refused := func(h *house, a *supervisor.Agent, waiting *supervisor.Turn) {
		h.Helper()
		start := time.Now()
		h.sup.StopAccepting()
		if r := h.outcome(waiting, supervisor.Cancelled); !errors.Is(r.Err, supervisor.ErrDraining) || since(start) != 0 {
			h.Errorf("what waits: %v after %v", r.Err, since(start))
		}
		if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: "3"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Prompt = %v, want ErrDraining", err)
		}
		if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "late"}); !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Start = %v, want ErrDraining", err)
		}
		h.sup.StopAccepting() // again
	}
	t.Run("runs", func(t *testing.T) {
		run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
			a := h.start("alice")
			running := h.prompt(a, "1", "")
			refused(h, a, h.prompt(a, "2", ""))
			h.outcome(running, supervisor.Completed)
		})
	})
	t.Run("crashes", func(t *testing.T) {
		run(t, series(supervisortest.Play{Prompt: supervisortest.UntilAborted}, supervisortest.Play{}), func(h *house) {
			a := h.start("alice")
			running := h.prompt(a, "1", "", supervisor.PromptOptions{Retry: true})
			refused(h, a, h.prompt(a, "2", ""))
			h.launcher.Child("alice").Crash(supervisor.Exit{Code: 1})
			h.outcome(running, supervisor.Crashed)
			time.Sleep(time.Hour) // in the bubble's time
			if again := h.launcher.Launches("alice"); len(again) != 1 {
				h.Errorf("%d incarnations were launched", len(again))
			}
		})
	})
}
