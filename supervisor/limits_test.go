package supervisor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// The agent's own bound of turns holds where nobody said one, and over one that is
// longer.
func TestTurnTime(t *testing.T) {
	for name, c := range map[string]struct{ limit, asked, want time.Duration }{
		"none asked":      {2 * time.Second, 0, 2 * time.Second},
		"a longer one":    {2 * time.Second, time.Minute, 2 * time.Second},
		"a shorter one":   {time.Minute, 3 * time.Second, 3 * time.Second},
		"no bound at all": {0, 4 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
				a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Limits: supervisor.Limits{TurnTime: c.limit}})
				if err != nil {
					h.Fatal(err)
				}
				begin := time.Now()
				r := h.outcome(h.prompt(a, "1", "", supervisor.PromptOptions{Timeout: c.asked}), supervisor.TimedOut)
				if !errors.Is(r.Err, supervisor.ErrTurnTimeout) || since(begin) != c.want {
					h.Errorf("%v after %v, want the timeout after %v", r.Err, since(begin), c.want)
				}
			})
		})
	}
}

// A limit that ended the child is named wherever its end is told.
func TestLimitIsNamed(t *testing.T) {
	plays := always(supervisortest.Play{Prompt: func(c *supervisortest.Child, _ protocol.Prompt) {
		c.Crash(supervisor.Exit{Code: 2, Limit: "memory limit 512 MiB"})
	}})
	run(t, plays, func(h *house) {
		a := h.start("alice")
		r := h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
		const told = "killed: memory limit 512 MiB"
		if want := "child crashed: " + told + " (incarnation 1)"; r.Err.Error() != want || a.Info().LastError != want {
			h.Errorf("the turn says %q, the agent %q, want %q", r.Err, a.Info().LastError, want)
		}
		ends := 0
		for _, e := range h.events(a) {
			if strings.Contains(string(e.Data), told) && (e.Type == "turn_end" || e.Type == "agent_state") {
				ends++
			}
		}
		if ends != 2 {
			h.Errorf("%d events name the limit, want turn_end and agent_state", ends)
		}
	})
}
