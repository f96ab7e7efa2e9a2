package pi

import (
	"cmp"
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxError bounds the text of an error, in bytes.
	maxError = 2 << 10
	// maxOutput bounds what is kept of a call's output, in bytes, to tell what is new in it.
	maxOutput = 256 << 10
)

// turn is one prompt until its end. The reader alone uses it; Prompt reads it once over is closed.
type turn struct {
	ctx  context.Context // of the prompt: it ends when the turn is cancelled
	id   string
	sink foreign.Sink
	over chan struct{} // closed at its end

	settling string // id of the question whether it is over; the session's mu guards it
	begun    bool   // agent_start came
	ended    bool   // agent_end came, and nothing began again
	retries  bool   // the program waits before it tries again, or compacts
	stop     string // of the last message of the model
	wrong    string // its error
	usage    protocol.TurnUsage

	streamed     bool   // the message that ends next came in pieces
	call, output string // the call that puts out something, and what was passed on of that
}

// settled reports whether the turn is over, by the program's state.
func (t *turn) settled(state gjson.Result) bool {
	if t.begun && !t.ended || t.retries {
		return false
	}
	return !state.Get("isStreaming").Bool() && !state.Get("isCompacting").Bool()
}

// take takes one event.
func (t *turn) take(kind string, m gjson.Result) {
	switch kind {
	case "agent_start":
		t.begun, t.ended, t.retries = true, false, false
	case "agent_end":
		t.ended = t.begun // else it is the end of the turn before, once more
	case "auto_retry_start", "compaction_start":
		t.retries = true
		t.sink.Foreign([]byte(m.Raw))
	case "auto_retry_end":
		t.retries = false
		t.sink.Foreign([]byte(m.Raw))
	case "compaction_end":
		t.retries = m.Get("willRetry").Bool() // until it begins
		t.sink.Foreign([]byte(m.Raw))
	case "turn_start", "turn_end", "queue_update":
	default:
		if t.begun && !t.ended { // else it is of no turn, or of the one before
			t.say(kind, m)
		}
	}
}

// say passes on an event of a turn that goes on.
func (t *turn) say(kind string, m gjson.Result) {
	switch kind {
	case "message_start":
		t.streamed = false
	case "message_update":
		t.update(m.Get("assistantMessageEvent"))
	case "message_end":
		t.message(m.Get("message"))
	case "tool_execution_start":
		t.sink.Call(call(m.Get("toolCallId"), m.Get("toolName"), m.Get("args")))
	case "tool_execution_update":
		t.more(m.Get("toolCallId").Str, foreign.Words(m.Get("partialResult.content")))
	case "tool_execution_end":
		t.sink.Result(m.Get("toolCallId").Str, foreign.Words(m.Get("result.content")), m.Get("isError").Bool())
	default:
		t.sink.Foreign([]byte(m.Raw))
	}
}

// update is a piece of a message. The rest of it is the whole message so far, again.
func (t *turn) update(e gjson.Result) {
	switch e.Get("type").Str {
	case "text_delta":
		t.streamed = true
		t.sink.Text(e.Get("delta").Str)
	case "thinking_delta":
		t.streamed = true
		t.sink.Thinking(e.Get("delta").Str)
	case "toolcall_end":
		c := e.Get("toolCall")
		t.sink.Call(call(c.Get("id"), c.Get("name"), c.Get("arguments")))
	}
}

// message is a whole message, of which the text was told if it came in pieces.
func (t *turn) message(m gjson.Result) {
	if m.Get("role").Str != "assistant" {
		return
	}
	t.stop, t.wrong = m.Get("stopReason").Str, m.Get("errorMessage").Str
	used := m.Get("usage")
	t.usage.InputTokens += used.Get("input").Uint()
	t.usage.OutputTokens += used.Get("output").Uint()
	t.usage.CacheReadInputTokens += used.Get("cacheRead").Uint()
	t.usage.CacheCreationInputTokens += used.Get("cacheWrite").Uint()
	if cost, ok := foreign.Cost(used.Get("cost.total")); ok {
		if t.usage.Cost == nil {
			t.usage.Cost = new(float64)
		}
		*t.usage.Cost += cost
	}
	for _, b := range m.Get("content").Array() {
		switch b.Get("type").Str {
		case "text":
			if !t.streamed {
				t.sink.Text(b.Get("text").Str)
			}
		case "thinking":
			if !t.streamed {
				t.sink.Thinking(b.Get("thinking").Str)
			}
		case "toolCall":
			t.sink.Call(call(b.Get("id"), b.Get("name"), b.Get("arguments")))
		}
	}
	t.streamed = false
}

func call(id, name, input gjson.Result) foreign.Call {
	c := foreign.Call{ID: id.Str, Name: name.Str}
	if input.IsObject() {
		c.Input = jsontext.Value(input.Raw)
	}
	return c
}

// more passes on what is new in a call's output: the program tells all of it each time.
func (t *turn) more(id, all string) {
	if t.call != id {
		t.call, t.output = id, ""
	}
	if added, grown := strings.CutPrefix(all, t.output); grown && added != "" && len(all) <= maxOutput {
		t.output = all
		t.sink.Output(id, added)
	}
}

// outcome is how the turn ended.
func (t *turn) outcome() (foreign.Done, error) {
	done := foreign.Done{Stop: protocol.StopCompleted, Usage: t.usage}
	switch {
	case t.ctx.Err() != nil || t.stop == "aborted":
		done.Stop = protocol.StopAborted
	case t.stop == "error":
		return done, turnError("the program failed the turn: " + cmp.Or(t.wrong, "it does not say why"))
	case t.stop == "length":
		done.Stop = protocol.StopMaxTokens
	}
	return done, nil
}

func turnError(text string) error {
	e := &foreign.TurnError{Message: textcut.Clip(text, maxError)}
	for _, sign := range []string{"No API key", "/login", "authentication_error", "invalid x-api-key"} {
		if strings.Contains(text, sign) {
			e.Reason = protocol.Credentials
		}
	}
	return e
}
