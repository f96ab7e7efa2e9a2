package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/tracing"
)

// MaxHostCalls is how many host calls of one agent may be under way, or have an answer that
// it has not read; one more is answered with an error (SPEC §7).
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

// Host answers what agents ask of the program that has the Supervisor.
type Host interface {
	// HostCall answers what an agent asks of its parent by a host_call: method
	// and params are as the child wrote them, params being a JSON value. It is
	// called by a goroutine of its own for each call and is to return soon after
	// ctx ends: the caller has cancelled, its turn has ended, or its process. What
	// it returns then is dropped.
	HostCall(ctx context.Context, from Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError)
}

// hostCall is one that is under way.
type hostCall struct {
	turn   *Turn
	cancel context.CancelCauseFunc
}

// hostCalls are those of one incarnation that are under way. The owner guards them.
type hostCalls struct {
	under  map[string]*hostCall // by call_id
	unread map[string]struct{}  // answers that wait for the child to read, by their id; with under at most MaxHostCalls
}

func (h *hostCalls) begin(callID string, c *hostCall) {
	if h.under == nil {
		h.under = map[string]*hostCall{}
	}
	h.under[callID] = c
}

// answered forgets a call that has its answer; false if nobody waits for it any more.
func (h *hostCalls) answered(callID string, c *hostCall) bool {
	if h.under[callID] != c {
		return false
	}
	delete(h.under, callID)
	return true
}

// leave notes an answer that the child has not read.
func (h *hostCalls) leave(r protocol.HostResult) {
	if h.unread == nil {
		h.unread = map[string]struct{}{}
	}
	h.unread[r.ID] = struct{}{}
}

// read forgets an answer that was written, or cannot be.
func (h *hostCalls) read(c protocol.Command) { delete(h.unread, c.Ident()) }

func (h *hostCalls) cancel(callID string) {
	if c := h.under[callID]; c != nil {
		delete(h.under, callID)
		c.cancel(errCallCancelled)
	}
}

// end gives up the calls of a turn; nil means all.
func (h *hostCalls) end(t *Turn) {
	for id, c := range h.under {
		if t == nil || c.turn == t {
			delete(h.under, id)
			c.cancel(errCallerGone)
		}
	}
}

// Why a host call ends before its answer.
var (
	errCallCancelled = errors.New("the host call was cancelled")
	errCallerGone    = errors.New("the turn that asked has ended")
)

// hostCall answers a host_call of the child for the turn that runs, nil for none.
func (inc *incarnation) hostCall(t *Turn, c protocol.HostCall) {
	if inc.ending() {
		return // nobody is there to be answered
	}
	if refusal := inc.refuseHost(t, c); refusal != "" {
		inc.enqueue(inc.hostResult(c.CallID, nil, &protocol.HostError{Code: CodeRefused, Message: refusal}))
		return
	}
	ctx, cancel := context.WithCancelCause(tracing.With(context.Background(), t.trace))
	call := &hostCall{turn: t, cancel: cancel}
	inc.host.begin(c.CallID, call)
	a := inc.agent
	from := Caller{AgentID: a.spec.ID, TurnID: t.id, Incarnation: inc.number}
	a.work.Go(func() {
		value, failure := a.spec.Host.HostCall(ctx, from, c.Method, c.Params)
		a.update(func(s *agentState) []effect {
			cancel(nil)
			if inc.host.answered(c.CallID, call) { // else nobody waits any more
				r := inc.hostResult(c.CallID, value, failure)
				inc.host.leave(r)
				inc.enqueue(r)
			}
			return s.here()
		})
	})
}

// refuseHost says why a call is not carried out; "" if it is.
func (inc *incarnation) refuseHost(t *Turn, c protocol.HostCall) string {
	switch {
	case inc.agent.spec.Host == nil:
		return "this agent may not ask for other agents"
	case t == nil || t.id != c.TurnID:
		return "the turn that asks does not run"
	case t.reason != nil:
		return "the turn that asks is being cancelled"
	case inc.host.under[c.CallID] != nil:
		return "call_id is in use"
	case len(inc.host.under)+len(inc.host.unread) >= MaxHostCalls:
		return fmt.Sprintf("%d calls are under way already", MaxHostCalls)
	default:
		return ""
	}
}

func (inc *incarnation) hostResult(callID string, value jsontext.Value, failure *protocol.HostError) protocol.HostResult {
	r := protocol.HostResult{ID: inc.agent.sup.nextID(), CallID: callID, Result: value, Error: failure}
	if failure == nil && value == nil {
		r.Result = jsontext.Value("{}")
	}
	return r
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
