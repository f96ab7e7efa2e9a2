package codex

import (
	"context"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
)

// turn is one prompt until its end. The reader alone uses it, but for what mu guards.
type turn struct {
	ctx     context.Context // of the prompt: it ends when the turn is cancelled
	id      string
	sink    foreign.Sink
	started chan struct{} // of one: it was told of
	ended   chan struct{} // closed; final is valid then
	final   gjson.Result

	said    map[string]bool // items whose text came in pieces
	message string          // the item whose text came last; "" after a call

	mu    sync.Mutex // guards all below
	items map[string]gjson.Result
	base  *tokens // of the thread before the turn; nil if they are not known
	spent tokens
}

func newTurn(ctx context.Context, id string, sink foreign.Sink) *turn {
	return &turn{
		ctx: ctx, id: id, sink: sink, started: make(chan struct{}, 1), ended: make(chan struct{}),
		said: map[string]bool{}, items: map[string]gjson.Result{},
	}
}

func (t *turn) spend(total, last tokens) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base == nil { // a thread that was gone on with
		before := total.minus(last)
		t.base = &before
	}
	t.spent = total.minus(*t.base)
}

func (t *turn) end(final gjson.Result) {
	t.final = final
	close(t.ended)
}

// outcome is what the end means. The program counts cached tokens as input.
func (t *turn) outcome(ctx context.Context) (foreign.Done, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.spent
	done := foreign.Done{Stop: protocol.StopCompleted, Usage: protocol.TurnUsage{
		InputTokens: u.input - min(u.input, u.cached+u.written), OutputTokens: u.output, CacheReadInputTokens: u.cached, CacheCreationInputTokens: u.written,
	}}
	switch status := t.final.Get("status").Str; {
	case ctx.Err() != nil || status == "interrupted":
		done.Stop = protocol.StopAborted
	case status != "completed":
		return foreign.Done{Usage: done.Usage}, turnError(t.final.Get("error"))
	}
	return done, nil
}

// turnError is what the error of a turn means.
func turnError(e gjson.Result) error {
	text := "the program failed the turn"
	for _, more := range []string{e.Get("message").Str, e.Get("additionalDetails").Str} {
		if more != "" {
			text += ": " + more
		}
	}
	kind := e.Get("codexErrorInfo")
	name := kind.Str
	kind.ForEach(func(key, _ gjson.Result) bool {
		if kind.IsObject() {
			name = key.Str
		}
		return false
	})
	reasons := map[string]string{
		"unauthorized": protocol.Credentials, "rateLimitExceeded": protocol.RateLimited, "usageLimitExceeded": protocol.RateLimited,
		"serverOverloaded": protocol.Unreachable, "httpConnectionFailed": protocol.Unreachable,
		"responseStreamConnectionFailed": protocol.Unreachable, "responseStreamDisconnected": protocol.Unreachable,
		"responseTooManyFailedAttempts": protocol.Unreachable, "cyberPolicy": protocol.ContentRefused,
	}
	return &foreign.TurnError{Message: text, Reason: reasons[name]}
}

// take passes on one notification or request.
func (t *turn) take(m rpcpeer.Message) {
	id, delta := m.Params.Get("itemId").Str, m.Params.Get("delta").Str
	switch m.Method {
	case "turn/started":
		select {
		case t.started <- struct{}{}:
		default:
		}
	case "item/agentMessage/delta":
		t.said[id] = true
		t.text(id, delta)
	case "item/reasoning/summaryTextDelta", "item/reasoning/textDelta":
		t.said[id] = true
		t.sink.Thinking(delta)
	case "item/commandExecution/outputDelta", "item/fileChange/outputDelta":
		t.sink.Output(id, delta)
	case "item/started":
		t.item(m, false)
	case "item/completed":
		t.item(m, true)
	case "thread/started", "thread/status/changed", "thread/tokenUsage/updated", "serverRequest/resolved", "item/reasoning/summaryPartAdded",
		"item/commandExecution/requestApproval", "item/fileChange/requestApproval": // others say the same
	default:
		t.sink.Foreign([]byte(m.Raw))
	}
}

// text passes on text of an item. Two messages without a call between are two paragraphs.
func (t *turn) text(id, text string) {
	if t.message != "" && t.message != id {
		text = "\n\n" + text
	}
	t.message = id
	t.sink.Text(text)
}

// item passes on what an item says at its begin or end.
func (t *turn) item(m rpcpeer.Message, ended bool) {
	item := m.Params.Get("item")
	id := item.Get("id").Str
	switch kind := item.Get("type").Str; kind {
	case "userMessage": // the prompt again
	case "agentMessage":
		if text := item.Get("text").Str; ended && !t.said[id] && text != "" {
			t.text(id, text)
		}
	case "reasoning":
		if ended && !t.said[id] {
			t.sink.Thinking(strings.Join(append(texts(item.Get("summary")), texts(item.Get("content"))...), "\n\n"))
		}
	case "commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch":
		t.keep(id, item)
		t.message = ""
		t.sink.Call(foreign.Call{ID: id, Name: name(item), Input: arguments(item)})
		if ended {
			text, failed := result(item)
			t.sink.Result(id, text, failed)
		}
	default:
		if ended {
			t.sink.Foreign([]byte(m.Raw))
		}
	}
}

// maxItems is how many calls of a turn are known to questions about them.
const maxItems = 10_000

func (t *turn) keep(id string, item gjson.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.items) < maxItems {
		t.items[id] = item
	}
}

func (t *turn) known(id string) gjson.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.items[id]
}

func texts(list gjson.Result) (all []string) {
	for _, one := range list.Array() {
		all = append(all, one.Str)
	}
	return all
}
