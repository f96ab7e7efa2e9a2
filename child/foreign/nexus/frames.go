package nexus

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// Take implements [jsonlines.Handler].
func (s *session) Take(frame gjson.Result) {
	t, kind := s.running(), frame.Get("type").Str
	switch kind {
	case "ready":
		s.takeReady(frame)
	case "response":
		s.response(t, frame)
	case "error":
		s.fault(t, frame)
	case "permission_request":
		s.asked(t, frame)
	case "host_call":
		_ = s.peer.Send(command{
			Type: "host_result", ID: s.nextID(), CallID: frame.Get("call_id").Str,
			Error: jsontext.Value(`{"code":-32601,"message":"this parent offers no other agents"}`),
		})
	case "session_update", "permission_end":
	case "message_update":
		if t != nil && !t.ended {
			t.update(frame.Get("event"))
		}
	case "agent_end":
		if t != nil && !t.ended {
			t.end(frame)
		}
	default:
		if t == nil || t.ended {
			s.log.Debug("the program says something between turns", zap.String("type", textcut.Head(kind, 64)))
			return
		}
		t.sink.Foreign([]byte(frame.Raw))
	}
}

func (s *session) takeReady(frame gjson.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready: // it says so again: nothing follows from that
		return
	default:
	}
	s.id, s.model, s.version = frame.Get("session_id").Str, frame.Get("model").Str, frame.Get("protocol_version").Int()
	close(s.ready)
}

// response takes the answer to a command, of which that of the prompt ends the turn.
func (s *session) response(t *turn, frame gjson.Result) {
	id := frame.Get("id").Str
	switch {
	case t != nil && id == t.command:
		if !frame.Get("ok").Bool() {
			t.fail(frame.Get("error").Str, frame.Get("reason").Str)
		}
		if frame.Get("cancelled").Bool() {
			t.done.Stop, t.fault = protocol.StopAborted, nil
		}
		s.finish(t)
	case t != nil && id == t.question && id != "":
		if !frame.Get("streaming").Bool() && !t.ended { // it has refused the prompt: nothing follows
			s.finish(t)
		}
	default:
		s.peer.Answered(id, frame)
	}
}

// fault takes an error: of a command that is asked, or of the turn. The latter says that the prompt is
// refused, and then nothing follows, or why the turn fails, and then agent_end and a response do: only the
// program's state says which.
func (s *session) fault(t *turn, frame gjson.Result) {
	id := frame.Get("id").Str
	switch {
	case t != nil && id == t.command:
		t.fail(frame.Get("message").Str, "")
		t.question = s.nextID()
		_ = s.peer.Send(command{Type: "get_state", ID: t.question})
	case id != "" && s.peer.Answered(id, frame):
	default:
		s.log.Warn("the program reports an error", zap.String("message", textcut.Clip(frame.Get("message").Str, maxError)))
	}
}

// finish ends the turn.
func (s *session) finish(t *turn) {
	s.end(t)
	close(t.over)
}

func (t *turn) fail(message, reason string) {
	if message == "" {
		message = "the program says that the turn failed, and not why"
	}
	t.fault = &foreign.TurnError{Message: textcut.Clip(message, maxError), Reason: reason}
}

// end takes agent_end.
func (t *turn) end(frame gjson.Result) {
	t.ended = true
	usage := frame.Get("usage")
	t.done = foreign.Done{Stop: protocol.StopCompleted, Usage: protocol.TurnUsage{
		InputTokens: usage.Get("input_tokens").Uint(), OutputTokens: usage.Get("output_tokens").Uint(),
		CacheReadInputTokens: usage.Get("cache_read_input_tokens").Uint(), CacheCreationInputTokens: usage.Get("cache_creation_input_tokens").Uint(),
		Estimated: usage.Get("estimated").Bool(),
	}}
	if model := usage.Get("model").Str; model != "" {
		t.done.Usage.Model = &model
	}
	if cost, ok := foreign.Cost(usage.Get("cost")); ok {
		t.done.Usage.Cost = &cost
	}
	switch stop := protocol.StopReason(frame.Get("stop_reason").Str); stop {
	case protocol.StopMaxIterations, protocol.StopMaxTokens, protocol.StopContentFilter, protocol.StopAborted:
		t.done.Stop = stop
	case protocol.StopCompleted, protocol.StopError: // the response says so
	}
}

// update takes one step of the turn.
func (t *turn) update(e gjson.Result) {
	id := e.Get("tool_id").Str
	switch e.Get("type").Str {
	case "text_delta":
		t.sink.Text(e.Get("delta").Str)
	case "thinking_delta":
		t.sink.Thinking(e.Get("delta").Str)
	case "toolcall_start":
		t.sink.Call(foreign.Call{ID: id, Name: e.Get("tool_name").Str})
	case "toolcall_input":
		t.sink.Call(foreign.Call{ID: id, Input: jsontext.Value(e.Get("input").Raw)})
	case "toolcall_input_delta": // the whole input follows
	case "toolcall_output_delta":
		t.sink.Output(id, e.Get("delta").Str)
	case "toolcall_result":
		t.sink.Result(id, e.Get("result").Str, e.Get("is_error").Bool())
	default:
		t.sink.Foreign([]byte(e.Raw))
	}
}

// asked has somebody decide on a call of the program's tools. Between turns nobody is asked.
func (s *session) asked(t *turn, frame gjson.Result) {
	answer := command{Type: "permission_response", RequestID: frame.Get("request_id").Str, Decision: string(protocol.Deny), Reason: "no turn runs"}
	if t != nil && s.peer.Go(func(ended context.Context) {
		answer := answer
		answer.ID = s.nextID()
		answer.Decision, answer.Reason = s.decide(ended, t, frame)
		_ = s.peer.Send(answer)
	}) {
		return
	}
	answer.ID = s.nextID()
	_ = s.peer.Send(answer)
}

func (s *session) decide(ended context.Context, t *turn, frame gjson.Result) (decision, reason string) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	defer context.AfterFunc(ended, cancel)()
	q := foreign.Question{
		TurnID: t.id, Call: foreign.Call{ID: frame.Get("tool_id").Str, Name: frame.Get("tool_name").Str, Input: jsontext.Value(frame.Get("input").Raw)},
		Action: action(frame.Get("action").Str), Summary: textcut.Line(frame.Get("summary").Str, 300), Command: frame.Get("command").Str,
		Runs: true, // as the program shows it, which has cut what does not run
	}
	for _, path := range frame.Get("paths").Array() {
		q.Paths = append(q.Paths, path.Str)
	}
	answer, err := s.client.Permit(ctx, q)
	if err != nil {
		return string(protocol.Deny), err.Error()
	}
	if answer.Decision == protocol.AllowSession { // nexus remembers it
		return string(protocol.AllowOnce), ""
	}
	return string(answer.Decision), answer.Reason
}

// action is what a call does to the world; what is not known may do anything.
func action(name string) protocol.Action {
	switch a := protocol.Action(name); a {
	case protocol.ActionRead, protocol.ActionWrite, protocol.ActionExecute:
		return a
	default:
		return protocol.ActionExternal
	}
}
