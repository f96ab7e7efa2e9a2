package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/tracing"
)

// MaxHostCalls is how many host calls of one agent may be under way; one more
// is answered with an error (SPEC §7).
const MaxHostCalls = 64

// CodeRefused is the code of a host call that the supervisor itself refuses:
// the façade's "Resource unavailable".
const CodeRefused = -32001

// Caller is the turn that asks by a host call.
type Caller struct {
	AgentID     string
	TurnID      string
	Incarnation uint64
}

// HostHandler answers what an agent asks of its parent by a host_call: method
// and params are as the child wrote them, params being a JSON value. It is
// called by a goroutine of its own for each call and is to return soon after
// ctx ends: the caller has cancelled, its turn has ended, or its process. What
// it returns then is told to nobody.
type HostHandler func(ctx context.Context, from Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError)

// hostCall is one that is under way.
type hostCall struct {
	turn   *Turn
	cancel context.CancelCauseFunc
}

// Why a host call ends before its answer.
var (
	errCallCancelled = errors.New("the host call was cancelled")
	errCallerGone    = errors.New("the turn that asked has ended")
)

// hostCall answers a host_call of the child. The agent's mutex is held.
func (a *Agent) hostCall(inc *incarnation, c protocol.HostCall) {
	if inc.lost != "" || inc.stopped != nil {
		return // nobody is there to be answered
	}
	if refusal := a.refuseHost(inc, c); refusal != "" {
		inc.put(a.hostResult(c.CallID, nil, &protocol.HostError{Code: CodeRefused, Message: refusal}))
		return
	}
	ctx, cancel := context.WithCancelCause(tracing.With(context.Background(), a.turn.trace))
	call := &hostCall{turn: a.turn, cancel: cancel}
	if inc.host == nil {
		inc.host = map[string]*hostCall{}
	}
	inc.host[c.CallID] = call
	from := Caller{AgentID: a.spec.ID, TurnID: a.turn.id, Incarnation: inc.number}
	a.work.Go(func() {
		value, failure := a.sup.host(ctx, from, c.Method, c.Params)
		a.mu.Lock()
		defer a.release()
		cancel(nil)
		if inc.host[c.CallID] == call { // else nobody waits any more
			delete(inc.host, c.CallID)
			inc.put(a.hostResult(c.CallID, value, failure))
		}
	})
}

// refuseHost says why a call is not carried out; "" if it is.
func (a *Agent) refuseHost(inc *incarnation, c protocol.HostCall) string {
	switch {
	case a.sup.host == nil || !a.spec.HostCalls:
		return "this agent may not ask for other agents"
	case a.running() == nil || a.turn.id != c.TurnID:
		return "the turn that asks does not run"
	case a.turn.reason != nil:
		return "the turn that asks is being cancelled"
	case inc.host[c.CallID] != nil:
		return "call_id is in use"
	case len(inc.host) >= MaxHostCalls:
		return fmt.Sprintf("%d calls are under way already", MaxHostCalls)
	default:
		return ""
	}
}

func (a *Agent) hostResult(callID string, value jsontext.Value, failure *protocol.HostError) protocol.HostResult {
	r := protocol.HostResult{ID: a.sup.nextID(), CallID: callID, Result: value, Error: failure}
	if failure == nil && value == nil {
		r.Result = jsontext.Value("{}")
	}
	return r
}

// hostCancel gives up a call that nobody waits for any more.
func (inc *incarnation) hostCancel(callID string) {
	if call := inc.host[callID]; call != nil {
		delete(inc.host, callID)
		call.cancel(errCallCancelled)
	}
}

// endHost gives up the calls of a turn; nil means all.
func (inc *incarnation) endHost(t *Turn) {
	for id, call := range inc.host {
		if t == nil || call.turn == t {
			delete(inc.host, id)
			call.cancel(errCallerGone)
		}
	}
}

// Delegate is a Prompt on behalf of another agent's turn, which waits for the
// outcome. When ctx ends first, the prompt is cancelled, unless it had joined
// one that was there before, and the error is that of ctx. A prompt whose
// caller would, over however many agents, wait for itself is refused with a
// *CycleError. The other errors are those of Prompt and Turn.Wait.
func (a *Agent) Delegate(ctx context.Context, from Caller, p protocol.Prompt, o PromptOptions) (Result, error) {
	if err := a.sup.waits.begin(from.AgentID, a.spec.ID); err != nil {
		return Result{}, err
	}
	defer a.sup.waits.end(from.AgentID, a.spec.ID)
	t, fresh, err := a.prompt(ctx, p, o)
	if err != nil {
		return Result{}, err
	}
	r, err := t.Wait(ctx)
	if fresh && !t.over() {
		a.log.Debug("cancelled with its caller", zap.String("turn", t.id), zap.String("caller", from.AgentID))
		a.abortTurn(t.id, fmt.Errorf("%w: %s, which asked for it, does not wait any more", ErrAborted, from.AgentID))
	}
	return r, err
}

// CycleError says that a turn would wait for itself.
type CycleError struct {
	// Path are the agents that wait for each other, the first one again at the
	// end.
	Path []string
}

func (e *CycleError) Error() string {
	return "would wait for itself: " + strings.Join(e.Path, " → ")
}

// waits is who waits for whom. An agent runs one turn at a time, and a turn
// ends only once all its calls have: so agents that wait for each other in a
// circle wait for ever, whoever asked for their turns.
type waits struct {
	mu sync.Mutex // guards what follows
	// of counts, for each agent, the prompts by which it waits for others.
	of map[string]map[string]int
}

func (w *waits) begin(from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if path := w.path(to, from); path != nil {
		return &CycleError{Path: append([]string{from}, path...)}
	}
	if w.of == nil {
		w.of = map[string]map[string]int{}
	}
	if w.of[from] == nil {
		w.of[from] = map[string]int{}
	}
	w.of[from][to]++
	return nil
}

func (w *waits) end(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[from][to]--; w.of[from][to] == 0 {
		delete(w.of[from], to)
	}
	if len(w.of[from]) == 0 {
		delete(w.of, from)
	}
}

// path is a way from one agent to another by those that it waits for, both
// included; nil if there is none. It looks at each agent once.
func (w *waits) path(from, to string) []string {
	before := map[string]string{from: ""}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		at := next[0]
		if at == to {
			var way []string
			for ; at != ""; at = before[at] {
				way = append(way, at)
			}
			slices.Reverse(way)
			return way
		}
		for other := range w.of[at] {
			if _, seen := before[other]; !seen {
				before[other] = at
				next = append(next, other)
			}
		}
	}
	return nil
}
