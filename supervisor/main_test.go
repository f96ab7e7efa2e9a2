package supervisor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a supervisor over in-memory children, in a bubble of its own time.
type house struct {
	*testing.T
	launcher *supervisortest.Launcher
	sup      *supervisor.Supervisor
	host     supervisor.Host // of the agents
}

// run plays f in a bubble and stops the supervisor afterwards.
func run(t *testing.T, plan func(s supervisor.Spec, n int) supervisortest.Play, f func(h *house)) {
	t.Helper()
	hosted(t, nil, plan, f)
}

// hosted is run with what answers host calls.
func hosted(t *testing.T, host func(h *house) hostCall, plan func(s supervisor.Spec, n int) supervisortest.Play, f func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		launcher := &supervisortest.Launcher{Plan: plan}
		h := &house{T: t, launcher: launcher}
		o := supervisor.Options{
			Launcher: launcher,
		}
		if host != nil {
			h.host = host(h)
		}
		h.sup = supervisor.NewUnspread(o)
		defer h.drain()
		f(h)
	})
}

// hostCall is a host that answers calls so.
type hostCall func(ctx context.Context, from supervisor.Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError)

func (f hostCall) HostCall(ctx context.Context, from supervisor.Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError) {
	return f(ctx, from, method, params)
}

func (h *house) drain() {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.sup.Run(ctx); err != nil {
		h.Errorf("Run = %v", err)
	}
	if left := h.sup.Agents(); len(left) > 0 {
		h.Errorf("agents left after Run: %v", left)
	}
}

// always is a plan with one play for all incarnations.
func always(p supervisortest.Play) func(supervisor.Spec, int) supervisortest.Play {
	return func(supervisor.Spec, int) supervisortest.Play { return p }
}

// series is a plan with one play for each incarnation; the last one repeats.
func series(plays ...supervisortest.Play) func(supervisor.Spec, int) supervisortest.Play {
	return func(_ supervisor.Spec, n int) supervisortest.Play { return plays[min(n, len(plays))-1] }
}

func (h *house) start(id string) *supervisor.Agent {
	h.Helper()
	a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: id, Host: h.host})
	if err != nil {
		h.Fatalf("Start(%s): %v", id, err)
	}
	return a
}

func (h *house) prompt(a *supervisor.Agent, id, message string, o ...supervisor.PromptOptions) *supervisor.Turn {
	h.Helper()
	var options supervisor.PromptOptions
	if len(o) > 0 {
		options = o[0]
	}
	turn, err := a.Prompt(h.Context(), protocol.Prompt{ID: id, Message: message}, options)
	if err != nil {
		h.Fatalf("Prompt(%s): %v", id, err)
	}
	return turn
}

// outcome waits for a turn and checks how it ended.
func (h *house) outcome(turn *supervisor.Turn, want supervisor.Outcome) supervisor.Result {
	h.Helper()
	r, err := turn.Wait(h.Context())
	if r.Outcome != want {
		h.Fatalf("turn %s: outcome %q (%v), want %q", turn.ID(), r.Outcome, err, want)
	}
	if !errors.Is(err, r.Err) || (err == nil) != (want == supervisor.Completed) {
		h.Errorf("turn %s: Wait error %v, Result.Err %v, outcome %q", turn.ID(), err, r.Err, want)
	}
	return r
}

func (h *house) state(a *supervisor.Agent, want supervisor.State) supervisor.Info {
	h.Helper()
	info := a.Info()
	if info.State != want {
		h.Errorf("state of %s = %s, want %s", info.ID, info.State, want)
	}
	return info
}

// events reads what is kept and returns the types, or turn_end's outcomes.
func (h *house) events(a *supervisor.Agent) []supervisor.Event {
	h.Helper()
	sub, err := a.Subscribe(0)
	if err != nil {
		h.Fatalf("Subscribe: %v", err)
	}
	defer sub.Close()
	return kept(h, sub)
}

// kept is what a subscription has without waiting.
func kept(h *house, sub *supervisor.Subscription) []supervisor.Event {
	h.Helper()
	now, cancel := context.WithCancel(h.Context())
	cancel()
	var events []supervisor.Event
	for {
		batch, err := sub.Next(now)
		if err != nil && len(events) == 0 {
			h.Fatalf("Next: %v", err)
		}
		if err != nil {
			return events
		}
		events = append(events, batch...)
	}
}

func since(start time.Time) time.Duration { return time.Since(start) }
