package supervisor_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

var retry = supervisor.PromptOptions{Retry: true}

// starts are the turn_start and turn_end events of an agent.
func (h *house) starts(a *supervisor.Agent) (got []string) {
	h.Helper()
	for _, e := range h.events(a) {
		if e.Type == "turn_start" || e.Type == "turn_end" {
			got = append(got, string(e.Data))
		}
	}
	return got
}

// A turn that may be sent again is, once, before what waits; it has one outcome,
// and a reader is told that its text begins anew.
func TestRetry(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		turn, waiting := h.prompt(a, "1", "whole", retry), h.prompt(a, "2", "x")
		text, at, err := turn.Read(h.Context(), supervisor.Place{})
		if text != "half" || at != (supervisor.Place{Attempt: 1, Offset: 4}) || err != nil {
			h.Errorf("Read = %q, %v, %v", text, at, err)
		}
		if text, at, err = turn.Read(h.Context(), at); text != "whole" || at.Attempt != 2 || err != nil {
			h.Errorf("Read after the restart = %q, %v, %v", text, at, err)
		}
		if _, at, err = turn.Read(h.Context(), at); !errors.Is(err, io.EOF) || at.Attempt != 2 {
			h.Errorf("Read at the end = %v, %v", at, err)
		}
		r := h.outcome(turn, supervisor.Completed)
		if r.Text != "whole" || r.Attempt != 2 || r.Incarnation != 2 {
			h.Errorf("result %+v", r)
		}
		h.outcome(waiting, supervisor.Completed)
		want := []string{
			`{"type":"turn_start","turn_id":"1"}`,
			`{"type":"turn_start","turn_id":"1","attempt":2}`,
			`{"type":"turn_end","turn_id":"1","outcome":"completed"}`,
			`{"type":"turn_start","turn_id":"2"}`,
			`{"type":"turn_end","turn_id":"2","outcome":"completed"}`,
		}
		if got := h.starts(a); !slices.Equal(got, want) {
			h.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// What is not sent again.
func TestNoRetry(t *testing.T) {
	hang := supervisortest.Play{Prompt: supervisortest.Hang}
	said := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Emit(protocol.AgentEnd{StopReason: protocol.StopCompleted, TurnID: p.ID}) // it is saved
		c.Crash(supervisor.Exit{})
	}}
	for _, c := range []struct {
		name    string
		play    supervisortest.Play
		options supervisor.PromptOptions
		during  func(h *house, a *supervisor.Agent)
		want    supervisor.Outcome
		text    string
		attempt int
	}{
		{"one that did not ask", supervisortest.Play{Prompt: crash}, supervisor.PromptOptions{}, nil, supervisor.Crashed, "half", 1},
		{"a second time", supervisortest.Play{Prompt: crash}, retry, nil, supervisor.Crashed, "half", 2},
		{"one that had ended", said, retry, nil, supervisor.Crashed, "", 1},
		{"one that was to be cancelled", hang, retry, func(h *house, a *supervisor.Agent) {
			if _, err := a.Abort(h.Context(), "1"); err == nil {
				h.Error("Abort did not tell of the crash")
			}
		}, supervisor.Crashed, "working", 1},
		{"one that exceeded its time", hang, supervisor.PromptOptions{Retry: true, Timeout: time.Second}, nil, supervisor.Crashed, "working", 1},
		{"one cancelled while it waits", supervisortest.Play{Prompt: crash}, retry, func(h *house, a *supervisor.Agent) {
			synctest.Wait()
			h.state(a, supervisor.Backoff)
			if cancelled, err := a.Abort(h.Context(), "1"); !cancelled || err != nil {
				h.Errorf("Abort = %v, %v", cancelled, err)
			}
		}, supervisor.Cancelled, "half", 1},
		{"one whose agent is stopped", supervisortest.Play{Prompt: crash}, retry, func(h *house, a *supervisor.Agent) {
			synctest.Wait()
			if err := a.Shutdown(h.Context()); err != nil {
				h.Error(err)
			}
		}, supervisor.Cancelled, "half", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, always(c.play), func(h *house) {
				a := h.start("alice")
				turn := h.prompt(a, "1", "x", c.options)
				synctest.Wait()
				if c.during != nil {
					c.during(h, a)
				}
				if r := h.outcome(turn, c.want); r.Text != c.text || r.Attempt != c.attempt {
					h.Errorf("result %+v", r)
				}
				time.Sleep(time.Minute) // in the bubble's time
				if got := h.starts(a); len(got) != c.attempt+1 {
					h.Errorf("events %v", got)
				}
			})
		})
	}
}

// An agent that fails ends what would be sent again, with what it had said.
func TestNoRetryOfAFailedAgent(t *testing.T) {
	plan := series(supervisortest.Play{Prompt: crash}, supervisortest.Play{Refuse: errors.New("no program")})
	run(t, plan, func(h *house) {
		a := h.start("alice")
		r := h.outcome(h.prompt(a, "1", "x", retry), supervisor.Crashed)
		if r.Text != "half" || r.Attempt != 1 || !strings.Contains(r.Err.Error(), "no program") {
			h.Errorf("result %+v", r)
		}
		h.state(a, supervisor.Failed)
	})
}

// The time limit bounds both attempts together; the wait between them is not counted.
func TestRetryHasOneLimit(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		if c.Number() > 1 {
			supervisortest.UntilAborted(c, p)
			return
		}
		c.Sleep(3 * time.Second)
		c.Crash(supervisor.Exit{Code: 1})
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		start := time.Now()
		turn := h.prompt(a, "1", "x", supervisor.PromptOptions{Retry: true, Timeout: 5 * time.Second})
		r := h.outcome(turn, supervisor.TimedOut)
		if since(start) != 5*time.Second+100*time.Millisecond || r.Attempt != 2 {
			h.Errorf("%+v after %v", r, since(start))
		}
		ctx, cancel := context.WithCancel(h.Context())
		cancel()
		if _, _, err := turn.Read(ctx, supervisor.Place{Attempt: 2, Offset: len(r.Text)}); !errors.Is(err, io.EOF) {
			h.Errorf("Read = %v", err)
		}
	})
}
