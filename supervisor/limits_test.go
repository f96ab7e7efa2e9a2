package supervisor_test

import (
	"errors"
	"slices"
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
	for name, c := range map[string]struct {
		limit, asked, want time.Duration
		named              string
	}{
		"none asked":      {2 * time.Second, 0, 2 * time.Second, "turn limit 2 s"},
		"a longer one":    {60 * time.Second, time.Hour, time.Minute, "turn limit 60 s"},
		"a shorter one":   {time.Minute, 3 * time.Second, 3 * time.Second, ""},
		"the same":        {time.Minute, time.Minute, time.Minute, ""},
		"no bound at all": {0, 4 * time.Second, 4 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
				a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Limits: supervisor.Limits{TurnSeconds: uint64(c.limit.Seconds())}})
				if err != nil {
					h.Fatal(err)
				}
				begin := time.Now()
				r := h.outcome(h.prompt(a, "1", "", supervisor.PromptOptions{Timeout: c.asked}), supervisor.TimedOut)
				if !errors.Is(r.Err, supervisor.ErrTurnTimeout) || since(begin) != c.want {
					h.Errorf("%v after %v, want the timeout after %v", r.Err, since(begin), c.want)
				}
				e, limited := errors.AsType[*supervisor.TurnLimitError](r.Err)
				if limited != (c.named != "") || limited && e.Limit() != c.named {
					h.Errorf("%T %v, want the limit %q", r.Err, r.Err, c.named)
				}
				events := h.events(a)
				if last := string(events[len(events)-1].Data); !strings.Contains(last, `"turn_end"`) || !strings.Contains(last, c.named) {
					h.Errorf("the last event is %s, want a turn_end with %q", last, c.named)
				}
			})
		})
	}
}

// Limits that are changed hold for the turns and the processes that begin later.
func TestSetLimits(t *testing.T) {
	var launched []supervisor.Limits
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		launched = append(launched, s.Limits)
		return supervisortest.Play{Prompt: supervisortest.UntilAborted}
	}
	run(t, plan, func(h *house) {
		first, second := supervisor.Limits{TurnSeconds: 3600, Processes: 1}, supervisor.Limits{TurnSeconds: 1, Processes: 2}
		a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Limits: first})
		if err != nil {
			h.Fatal(err)
		}
		a.SetLimits(second, 3)
		begin := time.Now()
		h.outcome(h.prompt(a, "1", ""), supervisor.TimedOut)
		if since(begin) != time.Second {
			h.Errorf("the turn ended after %v", since(begin))
		}
		if got := a.Info().MaxAgents; got == nil || *got != 3 {
			h.Errorf("it may have %v agents", got)
		}
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		h.outcome(h.prompt(a, "2", ""), supervisor.TimedOut)
		if want := []supervisor.Limits{first, second}; !slices.Equal(launched, want) {
			h.Errorf("launched with %+v, want %+v", launched, want)
		}
	})
}

// A child that does not end the turn when the agent's limit of turns is over is
// killed for that, and the limit is told.
func TestTurnTimeOfDeafChild(t *testing.T) {
	for name, c := range map[string]struct {
		asked time.Duration
		want  string
	}{
		"the agent's":  {0, "child crashed: cancel not honoured in 5s (incarnation 1, killed: turn limit 2 s)"},
		"the sender's": {time.Second, "child crashed: cancel not honoured in 5s (incarnation 1, signal: killed)"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: supervisortest.Hang}), func(h *house) {
				a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Limits: supervisor.Limits{TurnSeconds: 2}})
				if err != nil {
					h.Fatal(err)
				}
				r := h.outcome(h.prompt(a, "1", "", supervisor.PromptOptions{Timeout: c.asked}), supervisor.Crashed)
				crash, ok := errors.AsType[*supervisor.CrashError](r.Err)
				if !ok || crash.Error() != c.want || (crash.Exit.Limit != "") != (c.asked == 0) || crash.Reason != supervisor.ReasonCancel {
					h.Errorf("got %+v, want %s", r.Err, c.want)
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
