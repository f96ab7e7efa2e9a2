package claude

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxError bounds the text of an error, in bytes.
const maxError = 2 << 10

// turn is one prompt until its end. The reader alone uses it, but for what is said of a member.
type turn struct {
	ctx    context.Context // of the prompt: it ends when the turn is cancelled
	id     string
	prompt string // the id of the prompt, for the program
	sink   foreign.Sink
	result chan gjson.Result // of one: how the program ended it

	started  bool   // the program works on it; the session's mu guards it
	streamed string // id of the message that came in pieces
	wrong    string // what the program calls the error that it met; Prompt reads it after the end
}

func newTurn(ctx context.Context, id, prompt string, sink foreign.Sink) *turn {
	return &turn{ctx: ctx, id: id, prompt: prompt, sink: sink, result: make(chan gjson.Result, 1)}
}

// take passes on one message. begins reports that the program asks its model from now on.
func (t *turn) take(kind string, m gjson.Result) (begins bool) {
	if m.Get("parent_tool_use_id").Type == gjson.String { // of an agent that the program runs itself
		t.sink.Foreign([]byte(m.Raw))
		return false
	}
	switch kind {
	case "stream_event":
		return t.event(m.Get("event"), m.Raw)
	case "assistant":
		t.message(m)
	case "user":
		t.results(m.Get("message.content"))
	case "system":
		if m.Get("subtype").Str == "init" {
			return true
		}
		t.sink.Foreign([]byte(m.Raw))
		return m.Get("subtype").Str == "status"
	default:
		t.sink.Foreign([]byte(m.Raw))
	}
	return false
}

// event is a piece of a message, as the model's service has it.
func (t *turn) event(e gjson.Result, raw string) (begins bool) {
	switch e.Get("type").Str {
	case "message_start":
		t.streamed = e.Get("message.id").Str
		return true
	case "content_block_start":
		if b := e.Get("content_block"); b.Get("type").Str == "tool_use" {
			t.sink.Call(foreign.Call{ID: b.Get("id").Str, Name: b.Get("name").Str})
		}
	case "content_block_delta":
		switch delta := e.Get("delta"); delta.Get("type").Str {
		case "text_delta":
			t.sink.Text(delta.Get("text").Str)
		case "thinking_delta":
			t.sink.Thinking(delta.Get("thinking").Str)
		case "input_json_delta", "signature_delta": // the input comes whole, with the message
		default:
			t.sink.Foreign([]byte(raw))
		}
	case "content_block_stop", "message_delta", "message_stop", "ping":
	default:
		t.sink.Foreign([]byte(raw))
	}
	return false
}

// message is a whole message, or a block of one, of which the text was told if it came in pieces.
func (t *turn) message(m gjson.Result) {
	if wrong := m.Get("error").Str; wrong != "" { // its text is the error's, which the result has, too
		t.wrong = wrong
		return
	}
	id := m.Get("message.id").Str
	told := id != "" && id == t.streamed
	for _, b := range m.Get("message.content").Array() {
		switch b.Get("type").Str {
		case "text":
			if !told {
				t.sink.Text(b.Get("text").Str)
			}
		case "thinking":
			if !told {
				t.sink.Thinking(b.Get("thinking").Str)
			}
		case "tool_use":
			t.sink.Call(call(b.Get("id"), b.Get("name"), b.Get("input")))
		case "redacted_thinking":
		default:
			t.sink.Foreign([]byte(m.Raw))
		}
	}
}

func call(id, name, input gjson.Result) foreign.Call {
	c := foreign.Call{ID: id.Str, Name: name.Str}
	if input.IsObject() {
		c.Input = jsontext.Value(input.Raw)
	}
	return c
}

// results are those of calls; what else a user message has, the program told itself.
func (t *turn) results(content gjson.Result) {
	for _, b := range content.Array() {
		if b.Get("type").Str == "tool_result" {
			t.sink.Result(b.Get("tool_use_id").Str, foreign.Words(b.Get("content")), b.Get("is_error").Bool())
		}
	}
}

// outcome is how the turn ended.
func (t *turn) outcome(result gjson.Result, cost *float64) (foreign.Done, error) {
	done := foreign.Done{Stop: protocol.StopCompleted, Usage: usage(result)}
	done.Usage.Cost = cost
	failed := result.Get("is_error").Bool()
	switch subtype := result.Get("subtype").Str; {
	case t.ctx.Err() != nil:
		done.Stop = protocol.StopAborted
	case subtype == "error_max_turns":
		done.Stop = protocol.StopMaxIterations
	case !failed && subtype == "success":
		done.Stop = cmp.Or(stops[result.Get("stop_reason").Str], protocol.StopCompleted)
	default:
		text := failure(result)
		return done, &foreign.TurnError{Message: fmt.Sprintf("the program failed the turn: %s", textcut.Clip(text, maxError)), Reason: t.reason(text)}
	}
	return done, nil
}

// stops are the stop reasons of models that are no plain end.
var stops = map[string]protocol.StopReason{
	"max_tokens": protocol.StopMaxTokens, "model_context_window_exceeded": protocol.StopMaxTokens, "refusal": protocol.StopContentFilter,
}

// reason is why a turn failed, as a protocol.Refusal has it.
func (t *turn) reason(text string) string {
	switch t.wrong {
	case "authentication_failed", "oauth_org_not_allowed":
		return protocol.Credentials
	case "billing_error":
		return protocol.BudgetExceeded
	case "rate_limit":
		return protocol.RateLimited
	case "server_error", "overloaded":
		return protocol.Unreachable
	}
	if strings.Contains(text, "Please run /login") || strings.Contains(text, "Invalid API key") {
		return protocol.Credentials
	}
	return ""
}

// usage is that of the turn, of all models if the program tells of them, else of its own.
func usage(result gjson.Result) (u protocol.TurnUsage) {
	models := result.Get("model_usage_since_last_result")
	models.ForEach(func(_, m gjson.Result) bool {
		u.InputTokens += m.Get("inputTokens").Uint()
		u.OutputTokens += m.Get("outputTokens").Uint()
		u.CacheReadInputTokens += m.Get("cacheReadInputTokens").Uint()
		u.CacheCreationInputTokens += m.Get("cacheCreationInputTokens").Uint()
		return true
	})
	if told := result.Get("usage"); !models.Exists() {
		u.InputTokens, u.OutputTokens = told.Get("input_tokens").Uint(), told.Get("output_tokens").Uint()
		u.CacheReadInputTokens = told.Get("cache_read_input_tokens").Uint()
		u.CacheCreationInputTokens = told.Get("cache_creation_input_tokens").Uint()
	}
	return u
}
