package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// This file is the life of a turn. All methods want the agent's mutex.

// next begins the oldest waiting turn if the child is free.
func (a *Agent) next() {
	if a.state == Busy && a.turns.current == nil && a.inc.lost == "" {
		a.state = a.state.move(Ready)
	}
	if !a.free() || a.turns.first() == nil {
		return
	}
	if t, inc := a.turns.first(), a.inc; t.check == nil {
		a.begin(t)
	} else if !t.checking {
		t.checking = true
		a.work.Go(func() { a.checkWaited(t, inc) })
	}
}

// free reports whether a turn could begin.
func (a *Agent) free() bool { return a.state == Ready && a.inc.lost == "" }

// checkWaited asks whether a turn that had to wait may begin, and begins it if so. If
// it could not begin any more, or its process has ended meanwhile, it is asked again
// when it could. It takes the agent's mutex itself.
func (a *Agent) checkWaited(t *Turn, inc *incarnation) {
	err := t.check()
	a.mu.Lock()
	defer a.release()
	t.checking = false
	switch {
	case t.ended:
	case !a.free() || a.inc != inc || a.turns.first() != t:
		a.next()
	case err != nil:
		a.turns.remove(t)
		a.finish(t, Erred, err)
	default:
		a.begin(t)
	}
}

// begin begins the oldest waiting turn.
func (a *Agent) begin(t *Turn) {
	a.turns.begin()
	a.state = a.state.move(Busy)
	t.begin(a.inc.number)
	a.publish("turn_start", turnStartEvent(t.id, t.attempt))
	a.inc.put(t.prompt)
	if !t.repeatable() {
		a.letGo(t)
	}
	if t.limit > 0 {
		t.deadline = time.AfterFunc(t.limit, func() {
			a.mu.Lock()
			defer a.releaseElsewhere()
			if a.turns.current == t {
				a.abort(t, t.late)
			}
		})
	}
}

// again puts the running turn, whose process has crashed, back to be sent once
// more; false if that is not to be.
func (a *Agent) again(t *Turn) bool {
	if a.closed != nil || !t.repeatable() || t.reason != nil || t.end != nil {
		return false
	}
	a.sup.count.retries.Add(1)
	t.stopTimers()
	if t.limit > 0 {
		t.limit = max(t.limit-time.Since(t.began), time.Nanosecond)
	}
	a.turns.retry()
	return true
}

// abort asks the child to end the running turn. A child that does not within
// the grace is given up. The first reason holds. What the turn asked of other
// agents is cancelled with it.
func (a *Agent) abort(t *Turn, reason error) {
	if t.reason != nil || t.ended {
		return
	}
	t.reason = reason
	inc := a.inc
	inc.host.end(t)
	inc.put(protocol.Abort{ID: a.sup.nextID()})
	grace := a.spec.AbortGrace
	t.abort = time.AfterFunc(grace, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.turns.running() == t && a.inc == inc {
			if e, ok := errors.AsType[*TurnLimitError](reason); ok {
				inc.limit = e.Limit()
			}
			a.lose(inc, ReasonCancel, fmt.Sprintf("cancel not honoured in %s", grace))
		}
	})
}

// finish ends a turn. It is told by whoever gives up the mutex next.
func (a *Agent) finish(t *Turn, o Outcome, err error) {
	t.stopTimers()
	t.ended = true
	t.result = Result{
		TurnID: t.id, Outcome: o, Text: string(t.text), Truncated: t.truncated,
		Incarnation: t.incarnation, Attempt: t.attempt, Err: err,
	}
	if t.end != nil {
		t.result.Usage, t.result.StopReason = t.end.Usage, t.end.StopReason
	}
	t.text = nil
	t.finishSpan()
	a.letGo(t)
	if a.turns.current == t {
		a.inc.host.end(t)
		a.cancelPermissions(a.inc, func(r pendingPermission) bool { return r.TurnID == t.id })
	}
	a.turns.finish(t)
}

// told ends the wait for a turn whose outcome is recorded: its last event, its
// result, its waiters, in this order, and then the next turn.
func (a *Agent) told(t *Turn) {
	a.turns.notified(t)
	a.publish("turn_end", turnEndEvent(t.id, t.result.Outcome, t.result.Err))
	a.sup.count.outcome(t.result.Outcome).Add(1)
	close(t.done)
	a.next()
}

// failQueue ends all turns that wait.
func (a *Agent) failQueue(o Outcome, err error) {
	for _, t := range a.turns.removeAll() {
		a.finish(t, o, err)
	}
}

// handle takes one frame of the child. Events get their numbers here, in the
// order of the pipe, and a turn ends only after all of its own.
func (a *Agent) handle(inc *incarnation, f protocol.Frame) {
	switch {
	case f.Type == "message_update":
		raw := bytes.Clone(f.Raw)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.publish(f.Type, raw)
		if t := a.turns.running(); t != nil {
			t.take(raw)
		}
		return
	case protocol.Decoded(f.Type):
		event, err := protocol.Frame{Raw: f.Raw}.Decode() // all of it is checked
		raw := bytes.Clone(f.Raw)
		a.mu.Lock()
		defer a.releaseReader()
		if err != nil {
			a.lose(inc, ReasonOutput, fmt.Sprintf("unreadable %s: %v", f.Type, err))
			return
		}
		a.control(inc, raw, event)
	default:
		raw := bytes.Clone(f.Raw)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.publish(f.Type, raw)
	}
}

// control takes a frame that the supervisor acts on.
func (a *Agent) control(inc *incarnation, raw []byte, event protocol.Event) {
	switch e := event.(type) {
	case protocol.AgentEnd:
		a.publish(e.Name(), raw)
		if t := a.turns.running(); t != nil && (e.TurnID == "" || e.TurnID == t.id) {
			t.end = &e
		}
	case protocol.SessionUpdate:
		a.update = &e
		a.publish(e.Name(), raw)
	case protocol.Error:
		a.fault(raw, e)
	case protocol.Response:
		a.response(e)
	case protocol.HostCall:
		a.publish(e.Name(), raw)
		a.hostCall(inc, e)
	case protocol.HostCancel:
		a.publish(e.Name(), raw)
		inc.host.cancel(e.CallID)
	case protocol.PermissionRequest:
		a.permissionAsked(inc, raw, e)
	case protocol.PermissionEnd:
		if inc.permissions.end(e.RequestID, e.Outcome) { // else its end was told before
			a.publish(e.Name(), raw)
		}
	default:
		a.log.Error("frame without a rule", zap.String("type", event.Name()))
	}
}

func (a *Agent) response(r protocol.Response) {
	if t := a.turns.running(); t != nil && t.id == r.ID && r.Command == "prompt" {
		a.inc.heartbeat.answer()
		a.conclude(t, r)
		return
	}
	err := childError(r)
	if r.Command == (protocol.SetPermissions{}).Name() {
		a.narrowed = unsavedOf(err, a.narrowed)
	}
	a.answered(r.ID, answer{response: r, err: err})
}

// conclude ends the running turn as the child's response says.
func (a *Agent) conclude(t *Turn, r protocol.Response) {
	done, err := protocol.Prompt{}.Answer(r)
	switch failure := childError(r); {
	case failure != nil:
		a.finish(t, Erred, failure)
	case err != nil:
		a.finish(t, Erred, unreadable(r.Command, err))
	case done.Cancelled || t.end != nil && t.end.StopReason == protocol.StopAborted:
		reason := t.reason
		switch {
		case reason == nil && a.inc.stopped != nil:
			reason = fmt.Errorf("%w: %w", ErrAborted, a.inc.stopped)
		case reason == nil:
			reason = ErrAborted
		}
		if errors.Is(reason, ErrTurnTimeout) {
			a.finish(t, TimedOut, reason)
		} else {
			a.finish(t, Cancelled, reason)
		}
	default:
		a.finish(t, Completed, nil)
	}
}

// answered gives a command its answer; false if the child owes none of that id.
func (a *Agent) answered(id string, r answer) bool {
	if !a.calls.answered(id, r) {
		return false
	}
	a.inc.heartbeat.answer()
	a.sendCalls()
	return true
}

// sendCalls gives the child the commands that wait, if it is ready.
func (a *Agent) sendCalls() {
	if a.state != Ready && a.state != Busy {
		return
	}
	for _, c := range a.calls.next() {
		a.inc.put(c)
	}
}

// fault takes an error event. One that bears the id of a command answers it.
// One that bears the turn's id either refuses the prompt, and then nothing
// follows, or tells why the turn fails, and then agent_end and response do:
// only the child's state says which (SPEC §3.4).
func (a *Agent) fault(raw []byte, e protocol.Error) {
	if e.ID != nil {
		refused := &ChildError{Message: e.Message}
		if q := a.calls.pending[*e.ID]; q != nil {
			refused.Command = q.command.Name()
		}
		if a.answered(*e.ID, answer{err: refused}) {
			return
		}
	}
	if e.ID == nil && strings.HasPrefix(e.Message, protocol.AnswersLost) {
		a.inc.heartbeat.answer()
		a.calls.lose(e.Message)
		a.sendCalls()
	}
	a.publish(e.Name(), raw)
	t := a.turns.running()
	if t == nil || e.ID == nil || *e.ID != t.id {
		return
	}
	t.fault = e.Message
	if !t.faulted {
		t.faulted = true
		a.probe(t)
	}
}

// probe ends a turn of which the child says that it does not run it.
func (a *Agent) probe(t *Turn) {
	get := protocol.GetState{ID: a.sup.nextID()}
	q := &call{command: get, deliver: func(r answer) {
		state, _ := get.Answer(r.response) // of one that cannot be read nothing says that it runs
		switch {
		case a.turns.running() != t || a.state != Busy || state.Streaming || t.end != nil:
		case r.err != nil: // the answer was lost
			a.probe(t)
		default:
			a.finish(t, Erred, &ChildError{Command: "prompt", Message: t.fault})
		}
	}}
	a.calls.expect(q)
	a.inc.put(q.command)
}

func (a *Agent) publishState(reason string) {
	e := protocol.AgentState{State: a.state.String(), Incarnation: a.incarnations, Reason: text(reason)}
	a.publish(e.Name(), encode(e))
}

func turnStartEvent(id string, attempt int) []byte {
	e := protocol.TurnStart{TurnID: text(id)}
	if attempt > 1 {
		e.Attempt = attempt
	}
	return encode(e)
}

func turnEndEvent(id string, o Outcome, err error) []byte {
	e := protocol.TurnEnd{TurnID: text(id), Outcome: string(o)}
	if err != nil {
		e.Error = text(err.Error())
	}
	return encode(e)
}

// text is s with what is not UTF-8 in it replaced.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// encode writes an event of ours, whose texts are UTF-8.
func encode(e protocol.Event) []byte {
	data, err := protocol.AppendEvent(nil, e)
	if err != nil {
		panic("supervisor: " + err.Error())
	}
	return data
}
