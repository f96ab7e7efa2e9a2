package acp

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
)

// turn is one prompt until its end. The reader alone uses it, but for what mu guards.
type turn struct {
	ctx  context.Context // of the prompt: it ends when the turn is cancelled
	id   string
	sink foreign.Sink

	said, thought message

	mu    sync.Mutex // guards all below
	calls map[string]*call
	cost  *float64 // in US dollars, as far as the program told; nil if it did not
}

func newTurn(ctx context.Context, id string, sink foreign.Sink) *turn {
	seed := maphash.MakeSeed()
	t := &turn{ctx: ctx, id: id, sink: sink, calls: map[string]*call{}}
	t.said.sum.SetSeed(seed)
	t.thought.sum.SetSeed(seed)
	return t
}

// update passes on one update. raw is the whole message.
func (t *turn) update(u gjson.Result, raw string) {
	switch u.Get("sessionUpdate").Str {
	case "agent_message_chunk":
		t.chunk(u, raw, &t.said, t.sink.Text)
	case "agent_thought_chunk":
		t.chunk(u, raw, &t.thought, t.sink.Thinking)
	case "user_message_chunk": // the prompt again
	case "tool_call", "tool_call_update":
		t.said.end()
		t.thought.end()
		t.call(u)
	default:
		t.sink.Foreign([]byte(raw))
	}
}

// chunk passes on a piece of a message.
func (t *turn) chunk(u gjson.Result, raw string, of *message, pass func(string)) {
	content := u.Get("content")
	if content.Get("type").Str != "text" {
		t.sink.Foreign([]byte(raw))
		return
	}
	if text := content.Get("text").Str; !of.repeats(u.Get("messageId").Str, text) {
		pass(text)
	}
}

func (t *turn) spend(cost float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cost == nil {
		t.cost = new(float64)
	}
	*t.cost += cost
}

// usage is that of the turn, as far as the program tells. The protocol's members are not stable yet;
// those below _meta are what Gemini CLI writes.
func (t *turn) usage(result gjson.Result) protocol.TurnUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := protocol.TurnUsage{Cost: t.cost}
	if told := result.Get("usage"); told.IsObject() {
		u.InputTokens, u.OutputTokens = told.Get("inputTokens").Uint(), told.Get("outputTokens").Uint()
		u.CacheReadInputTokens, u.CacheCreationInputTokens = told.Get("cachedReadTokens").Uint(), told.Get("cachedWriteTokens").Uint()
	} else if told := result.Get("_meta.quota.token_count"); told.IsObject() {
		u.InputTokens, u.OutputTokens = told.Get("input_tokens").Uint(), told.Get("output_tokens").Uint()
	}
	return u
}

// minRepeat is how long a message is at least that is taken for said twice, in bytes: shorter ones
// may well be the same word again.
const minRepeat = 16

// message is what is being said, up to now.
type message struct {
	id     string
	pieces int
	length int
	sum    maphash.Hash // of all text
}

// repeats reports whether text is the whole message again that came in pieces, which some programs send
// at its end, and else adds it to the message.
func (m *message) repeats(id, text string) bool {
	if id != "" {
		if m.id != "" && id != m.id {
			m.end()
		}
		m.id = id
	}
	if m.pieces > 1 && m.length >= minRepeat && len(text) == m.length && maphash.String(m.sum.Seed(), text) == m.sum.Sum64() {
		m.end()
		return true
	}
	if text != "" {
		m.pieces++
		m.length += len(text)
		_, _ = m.sum.WriteString(text) // never fails
	}
	return false
}

// end ends the message.
func (m *message) end() {
	m.pieces, m.length = 0, 0
	m.sum.Reset()
}
