package supervisor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// handle takes one frame of the child. Events get their numbers here, in the
// order of the pipe, and a turn ends only after all of its own.
func (a *Agent) handle(inc *incarnation, f protocol.Frame) {
	var event protocol.Event
	var err error
	acted := f.Type != "message_update" && protocol.Decoded(f.Type)
	if acted {
		event, err = protocol.Frame{Raw: f.Raw}.Decode() // all of it is checked
	}
	raw := bytes.Clone(f.Raw)
	a.update(func(s *agentState) []effect {
		switch {
		case inc.lost == ReasonOutput: // nothing of such a child counts after that
			return nil
		case inc.takeOutput(protocol.Frame{Type: f.Type, Raw: raw}):
			return nil
		case !acted:
			a.publish(f.Type, raw)
			if t := s.turns.running(); t != nil && f.Type == "message_update" {
				t.take(raw)
			}
			return nil
		case err != nil:
			s.markLost(inc, ReasonOutput, fmt.Sprintf("unreadable %s: %v", f.Type, err))
		default:
			s.control(inc, raw, event)
			boundUnread(s, inc)
		}
		return s.byReader()
	})
}

// control takes a frame that the supervisor acts on.
func (s *agentState) control(inc *incarnation, raw []byte, event protocol.Event) {
	switch e := event.(type) {
	case protocol.AgentEnd:
		s.agent.publish(e.Name(), raw)
		if t := s.turns.running(); t != nil && (e.TurnID == "" || e.TurnID == t.id) {
			t.end = &e
		}
	case protocol.SessionUpdate:
		s.session = &e
		s.agent.publish(e.Name(), raw)
	case protocol.Error:
		s.fault(raw, e)
	case protocol.Response:
		s.response(e)
	case protocol.HostCall:
		if len(e.CallID) > protocol.MaxID {
			s.markLost(inc, ReasonOutput, tooLong("the call_id of a host_call", e.CallID))
			return
		}
		s.agent.publish(e.Name(), raw)
		inc.hostCall(s.turns.running(), e)
	case protocol.HostCancel:
		s.agent.publish(e.Name(), raw)
		inc.host.cancel(e.CallID)
	case protocol.PermissionRequest:
		if len(e.RequestID) > protocol.MaxID {
			s.markLost(inc, ReasonOutput, tooLong("the request_id of a permission_request", e.RequestID))
			return
		}
		inc.permissionAsked(raw, e)
	case protocol.PermissionEnd:
		if inc.permissions.end(e.RequestID, e.Outcome) { // else its end was told before
			s.agent.publish(e.Name(), raw)
		}
	default:
		s.agent.log.Error("frame without a rule", zap.String("type", event.Name()))
	}
}

// tooLong says of an id that answers would not have room for what they say beside it.
func tooLong(what, id string) string {
	return fmt.Sprintf("%s has %d bytes, and may have %d", what, len(id), protocol.MaxID)
}

func (s *agentState) response(r protocol.Response) {
	if t := s.turns.running(); t != nil && t.id == r.ID && r.Command == "prompt" {
		s.inc.heartbeat.answer()
		s.conclude(t, r)
		return
	}
	err := childError(r)
	if r.Command == (protocol.SetPermissions{}).Name() {
		if s.narrowed = unsavedOf(err, s.narrowed); s.narrowed.holds != nil && (s.state == Ready || s.state == Busy) {
			s.inc.saveLater()
		}
	}
	s.answered(r.ID, answer{response: r, err: err})
}

// conclude ends the running turn as the child's response says.
func (s *agentState) conclude(t *Turn, r protocol.Response) {
	done, err := protocol.Prompt{}.Answer(r)
	switch failure := childError(r); {
	case failure != nil:
		s.finish(t, Erred, failure)
	case err != nil:
		s.finish(t, Erred, unreadable(r.Command, err))
	case done.Cancelled || t.end != nil && t.end.StopReason == protocol.StopAborted:
		reason := t.reason
		switch {
		case reason == nil && s.inc.stopped != nil:
			reason = fmt.Errorf("%w: %w", ErrAborted, s.inc.stopped)
		case reason == nil:
			reason = ErrAborted
		}
		if errors.Is(reason, ErrTurnTimeout) {
			s.finish(t, TimedOut, reason)
		} else {
			s.finish(t, Cancelled, reason)
		}
	case t.end == nil: // what it did not end it may still be at
		s.finish(t, Erred, &ChildError{Command: r.Command, Message: "the child answered without the agent_end of this turn"})
	case t.end.StopReason == protocol.StopError:
		s.finish(t, Erred, &ChildError{Command: r.Command, Message: cmp.Or(t.fault, "the turn ended with an error that the child did not name")})
	default:
		s.finish(t, Completed, nil)
	}
}

// fault takes an error event. One that bears the id of a command answers it.
// One that bears the turn's id either refuses the prompt, and then nothing
// follows, or tells why the turn fails, and then agent_end and response do:
// only the child's state says which (SPEC §3.4).
func (s *agentState) fault(raw []byte, e protocol.Error) {
	if e.ID != nil {
		refused := &ChildError{Message: e.Message}
		if q := s.calls.pending[*e.ID]; q != nil {
			refused.Command = q.command.Name()
		}
		if s.answered(*e.ID, answer{err: refused}) {
			return
		}
	}
	if e.ID == nil && strings.HasPrefix(e.Message, protocol.AnswersLost) {
		s.inc.heartbeat.answer()
		s.calls.markLost(e.Message)
		s.sendCalls()
	}
	s.agent.publish(e.Name(), raw)
	t := s.turns.running()
	if t == nil || e.ID == nil || *e.ID != t.id {
		return
	}
	t.fault = e.Message
	if !t.faulted {
		t.faulted = true
		s.confirmRefused(t)
	}
}

// confirmRefused ends a turn that the child says it does not run.
func (s *agentState) confirmRefused(t *Turn) {
	get := protocol.GetState{ID: s.agent.sup.nextID()}
	q := &call{command: get, deliver: func(r answer) {
		state, _ := get.Answer(r.response) // of one that cannot be read nothing says that it runs
		runs := state.Streaming && (state.TurnID == nil || *state.TurnID == t.id)
		switch {
		case s.turns.running() != t || s.state != Busy || runs || t.end != nil:
		case r.err != nil: // the answer was lost
			s.confirmRefused(t)
		default:
			s.finish(t, Erred, &ChildError{Command: "prompt", Message: t.fault})
		}
	}}
	s.calls.expect(q)
	s.inc.enqueue(q.command)
}

func turnStartEvent(id string, attempt int) []byte {
	e := protocol.TurnStart{TurnID: text(id)}
	if attempt > 1 {
		e.Attempt = attempt
	}
	return protocol.EncodeEvent(e)
}

func turnEndEvent(id string, o Outcome, err error) []byte {
	e := protocol.TurnEnd{TurnID: text(id), Outcome: string(o)}
	if err != nil {
		e.Error = text(err.Error())
	}
	return protocol.EncodeEvent(e)
}

func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
