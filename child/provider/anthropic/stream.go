package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
	"nexus.internal/protocol/eventstream"
)

// ask makes one request and passes on its stream.
func (c *client) ask(ctx context.Context, t *httpapi.Attempt, question request) error {
	a := answer{Attempt: t, blocks: httpapi.ReasoningBlocks{Model: question.Model}, open: map[uint64]*part{}}
	err := t.Stream(ctx, "/messages", question, a.take)
	if err := t.Outcome(ctx, err, a.finished); err != nil {
		return err
	}
	a.end()
	return nil
}

// answer puts the deltas of one answer together.
type answer struct {
	*httpapi.Attempt
	finished bool // a stop_reason was seen
	reason   provider.FinishReason
	blocks   httpapi.ReasoningBlocks
	signed   int                // bytes of signatures so far; beyond httpapi.MaxSignature, none are kept
	open     map[uint64]*part   // by the index that the service gives them
	counted  protocol.TurnUsage // what the service states beside what Attempt.Usage reads
}

// part is a block of the answer that is still coming.
type part struct {
	kind      blockType
	index     int // in the blocks; of kinds that go back
	piece     httpapi.Text
	signature strings.Builder // of reasoning
	id        string          // of a call
	name      string
	whole     jsontext.Value // input that came with the beginning of the call
	input     strings.Builder
}

// take passes on what one event says. Events of kinds that are not known are
// passed over, as the service asks for.
func (a *answer) take(sent eventstream.Event) error {
	if sent.Name == "error" {
		return httpapi.ReadError(sent.Data)
	}
	var e event
	if err := httpapi.Decode(sent.Data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "message_start":
		if name := protocol.CutModelName(e.Message.Model); name != "" {
			a.counted.Model = &name
		}
		a.count(e.Message.Usage)
	case "content_block_start":
		return a.begin(e.Index, e.ContentBlock)
	case "content_block_delta":
		return a.grow(e.Index, e.Delta)
	case "content_block_stop":
		if b := a.open[e.Index]; b != nil {
			delete(a.open, e.Index)
			a.close(b)
		}
	case "message_delta":
		a.count(e.Usage)
		if e.Delta.StopReason != "" {
			a.finished = true
			a.reason = finishReason(e.Delta.StopReason)
		}
	case "":
		return &httpapi.MalformedError{Problem: "it has no type"}
	case "error": // without a line that names the event
		return httpapi.ReadError(sent.Data)
	}
	return nil
}

// begin opens a block. What it holds from the beginning, which is nothing as a
// rule, is passed on.
func (a *answer) begin(index uint64, content contentBlock) error {
	if a.open[index] != nil {
		return &httpapi.MalformedError{Problem: "a block begins twice"}
	}
	b := &part{kind: content.Type, index: len(a.blocks.Blocks)}
	a.open[index] = b
	switch content.Type {
	case typeText:
		a.blocks.Blocks = append(a.blocks.Blocks, httpapi.Block{Kind: httpapi.KindText})
		a.say(b, content.Text)
	case typeThinking:
		a.blocks.Blocks = append(a.blocks.Blocks, httpapi.Block{Kind: thought})
		a.sign(b, content.Signature)
		a.say(b, content.Thinking)
	case typeRedacted:
		a.blocks.Blocks = append(a.blocks.Blocks, httpapi.Block{Kind: hidden, Opaque: content.Data})
	case typeToolUse:
		a.blocks.Blocks = append(a.blocks.Blocks, httpapi.Block{Kind: httpapi.KindCall})
		b.id, b.name, b.whole = content.ID, content.Name, content.Input
		a.Emit(provider.CallStart{ID: b.id, Name: b.name})
	case typeImage, typeToolResult: // a model says neither
	}
	return nil
}

// grow adds to a block.
func (a *answer) grow(index uint64, more delta) error {
	b := a.open[index]
	if b == nil {
		return &httpapi.MalformedError{Problem: "a block goes on that has not begun"}
	}
	switch more.Type {
	case "text_delta":
		a.say(b, more.Text)
	case "thinking_delta":
		a.say(b, more.Thinking)
	case "signature_delta":
		if b.kind == typeThinking {
			a.sign(b, more.Signature)
		}
	case "input_json_delta":
		a.say(b, more.PartialJSON)
	}
	return nil
}

func (a *answer) sign(b *part, piece string) {
	if a.signed += len(piece); a.signed <= httpapi.MaxSignature {
		b.signature.WriteString(piece)
	}
}

func (a *answer) say(b *part, piece jsontext.Value) { a.pass(b, b.piece.Next(piece)) }

func (a *answer) pass(b *part, said string) {
	if said == "" {
		return
	}
	switch b.kind {
	case typeText:
		a.blocks.Blocks[b.index].Bytes += len(said)
		a.Emit(provider.Text{Text: said})
	case typeThinking:
		a.blocks.Blocks[b.index].Bytes += len(said)
		a.Emit(provider.Thinking{Text: said})
	case typeToolUse:
		b.input.WriteString(said)
		a.Emit(provider.CallInput{ID: b.id, Fragment: said})
	case typeRedacted, typeImage, typeToolResult: // do not come in pieces
	}
}

// close passes on what was held back of a block, and the whole of a call.
func (a *answer) close(b *part) {
	a.pass(b, b.piece.Rest())
	if b.kind == typeThinking {
		a.blocks.Blocks[b.index].Opaque = b.signature.String()
	}
	if b.kind != typeToolUse {
		return
	}
	if b.input.Len() == 0 && b.whole.Kind() == '{' && bytes.Contains(b.whole, []byte(`"`)) { // it has a member
		a.pass(b, string(b.whole))
	}
	a.Emit(provider.Call{ToolCall: protocol.ToolCall{ID: b.id, Name: b.name, Input: httpapi.Input(b.input.String())}})
}

// end closes what the service left open and passes on the Stop.
func (a *answer) end() {
	began := func(x, y *part) int { return x.index - y.index }
	for _, b := range slices.SortedFunc(maps.Values(a.open), began) {
		a.close(b)
	}
	if signature := a.blocks.Signature(); signature != "" && a.signed <= httpapi.MaxSignature {
		a.Emit(provider.ThinkingSignature{Text: signature})
	}
	usage := a.Usage()
	usage.Model, usage.CacheCreation5m, usage.CacheCreation1h = a.counted.Model, a.counted.CacheCreation5m, a.counted.CacheCreation1h
	a.Emit(provider.Stop{Usage: usage, Reason: a.reason})
}

// count takes over how long what was written to the cache lives. The usage is stated at the
// beginning and, cumulative, at the end, there in part.
func (a *answer) count(said usage) {
	a.counted.CacheCreation5m = cmp.Or(said.Created.FiveMinutes, a.counted.CacheCreation5m)
	a.counted.CacheCreation1h = cmp.Or(said.Created.OneHour, a.counted.CacheCreation1h)
}

func finishReason(reason string) provider.FinishReason {
	switch reason {
	case "max_tokens", "model_context_window_exceeded",
		"pause_turn": // a long turn of the service's own tools, of which there are none here
		return provider.FinishLength
	case "tool_use":
		return provider.FinishToolCalls
	case "refusal":
		return provider.FinishFiltered
	default:
		return provider.FinishStop
	}
}

// event is one event of an answer. Type says which of the others it has.
type event struct {
	Type         string       `json:"type"`
	Message      start        `json:"message"`       // of message_start
	Index        uint64       `json:"index"`         // of content_block_*
	ContentBlock contentBlock `json:"content_block"` // of content_block_start
	Delta        delta        `json:"delta"`         // of content_block_delta and message_delta
	Usage        usage        `json:"usage"`         // of message_delta
}

// start is what is known of an answer before it is there.
type start struct {
	Model string `json:"model"`
	Usage usage  `json:"usage"`
}

// contentBlock is a block at its beginning, which is empty as a rule.
type contentBlock struct {
	Type      blockType      `json:"type"`
	Text      jsontext.Value `json:"text"`
	Thinking  jsontext.Value `json:"thinking"`
	Signature string         `json:"signature"`
	Data      string         `json:"data"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
}

// delta is what is added to a block, or to the message.
type delta struct {
	Type        string         `json:"type"`
	Text        jsontext.Value `json:"text"`
	Thinking    jsontext.Value `json:"thinking"`
	Signature   string         `json:"signature"`
	PartialJSON jsontext.Value `json:"partial_json"`
	StopReason  string         `json:"stop_reason"`
}

// usage is what of the usage of an answer protocol/tokencount does not read, in tokens. It
// is cumulative; what is missing is as it was said before.
type usage struct {
	Created struct {
		FiveMinutes *uint64 `json:"ephemeral_5m_input_tokens"`
		OneHour     *uint64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

// modelList is the answer to GET /v1/models.
type modelList struct {
	Data []struct {
		ID             string `json:"id"`
		DisplayName    string `json:"display_name"`
		MaxInputTokens uint64 `json:"max_input_tokens"`
	} `json:"data"`
}
