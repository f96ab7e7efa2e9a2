package anthropic

import (
	"context"
	"errors"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/wire"
	"nexus.internal/protocol"
)

// ask makes one request and passes on its stream.
func (c *client) ask(ctx context.Context, t *wire.Try, params sdk.MessageNewParams) error {
	stream := c.messages.NewStreaming(ctx, params, option.WithHTTPClient(t))
	defer func() { _ = stream.Close() }() // how the answer ended is known by then
	a := answer{Try: t, layout: wire.Layout{Model: params.Model}, open: map[int64]*block{}}
	for stream.Next() {
		if err := a.take(stream.Current()); err != nil {
			return err
		}
		if t.Left() {
			return nil
		}
	}
	err := stream.Err()
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		err = wire.ReadError([]byte(e.RawJSON()))
	}
	if err := t.Outcome(ctx, err, a.finished); err != nil {
		return err
	}
	a.end()
	return nil
}

// answer puts the deltas of one answer together.
type answer struct {
	*wire.Try
	finished bool // a stop_reason was seen
	reason   provider.FinishReason
	layout   wire.Layout
	open     map[int64]*block // by the index that the service gives them
	usage    protocol.TurnUsage
}

// block is a part of the answer that is still coming.
type block struct {
	kind  string // as the service calls it
	place int    // in the layout; of kinds that go back
	piece wire.Text
	id    string // of a call
	name  string
	whole string // input that came with the beginning of the call
	input strings.Builder
}

// take passes on what one event says. Events of kinds that are not known are
// passed over, as the service asks for.
func (a *answer) take(e sdk.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		if name := protocol.CutModelName(e.Message.Model); name != "" {
			a.usage.Model = &name
		}
		a.count(gjson.Get(e.RawJSON(), "message.usage"))
	case "content_block_start":
		return a.begin(e)
	case "content_block_delta":
		return a.grow(e)
	case "content_block_stop":
		if b := a.open[e.Index]; b != nil {
			delete(a.open, e.Index)
			a.close(b)
		}
	case "message_delta":
		a.count(gjson.Get(e.RawJSON(), "usage"))
		if e.Delta.StopReason != "" {
			a.finished = true
			a.reason = finishReason(e.Delta.StopReason)
		}
	case "":
		return &wire.MalformedError{Problem: "it has no type"}
	case "error": // without a line that names the event
		return wire.ReadError([]byte(e.RawJSON()))
	}
	return nil
}

// begin opens a block. What it holds from the beginning, which is nothing as a
// rule, is passed on.
func (a *answer) begin(e sdk.MessageStreamEventUnion) error {
	if a.open[e.Index] != nil {
		return &wire.MalformedError{Problem: "a block begins twice"}
	}
	content := e.ContentBlock
	b := &block{kind: content.Type, place: len(a.layout.Blocks)}
	a.open[e.Index] = b
	switch content.Type {
	case "text":
		a.layout.Blocks = append(a.layout.Blocks, wire.Block{Kind: wire.KindText})
		a.say(b, content.Text, e.RawJSON(), "content_block.text")
	case "thinking":
		a.layout.Blocks = append(a.layout.Blocks, wire.Block{Kind: thought, Opaque: content.Signature})
		a.say(b, content.Thinking, e.RawJSON(), "content_block.thinking")
	case "redacted_thinking":
		a.layout.Blocks = append(a.layout.Blocks, wire.Block{Kind: hidden, Opaque: content.Data})
	case "tool_use":
		a.layout.Blocks = append(a.layout.Blocks, wire.Block{Kind: wire.KindCall})
		b.id, b.name = content.ID, content.Name
		b.whole = gjson.Get(e.RawJSON(), "content_block.input").Raw
		a.Emit(provider.CallStart{ID: b.id, Name: b.name})
	}
	return nil
}

// grow adds to a block.
func (a *answer) grow(e sdk.MessageStreamEventUnion) error {
	b := a.open[e.Index]
	if b == nil {
		return &wire.MalformedError{Problem: "a block goes on that has not begun"}
	}
	switch delta := e.Delta; delta.Type {
	case "text_delta":
		a.say(b, delta.Text, e.RawJSON(), "delta.text")
	case "thinking_delta":
		a.say(b, delta.Thinking, e.RawJSON(), "delta.thinking")
	case "signature_delta":
		if b.kind == "thinking" {
			a.layout.Blocks[b.place].Opaque += delta.Signature
		}
	case "input_json_delta":
		a.say(b, delta.PartialJSON, e.RawJSON(), "delta.partial_json")
	}
	return nil
}

// say passes on a piece of a block: the string at path in event, which the SDK
// decoded.
func (a *answer) say(b *block, decoded, event, path string) {
	a.pass(b, b.piece.Next(decoded, event, path))
}

func (a *answer) pass(b *block, said string) {
	if said == "" {
		return
	}
	switch b.kind {
	case "text":
		a.layout.Blocks[b.place].Bytes += len(said)
		a.Emit(provider.Text{Text: said})
	case "thinking":
		a.layout.Blocks[b.place].Bytes += len(said)
		a.Emit(provider.Thinking{Text: said})
	case "tool_use":
		b.input.WriteString(said)
		a.Emit(provider.CallInput{ID: b.id, Fragment: said})
	}
}

// close passes on what was held back of a block, and the whole of a call.
func (a *answer) close(b *block) {
	a.pass(b, b.piece.Rest())
	if b.kind != "tool_use" {
		return
	}
	if b.input.Len() == 0 && gjson.Parse(b.whole).IsObject() && len(gjson.Parse(b.whole).Map()) > 0 {
		a.pass(b, b.whole)
	}
	a.Emit(provider.Call{ToolCall: protocol.ToolCall{ID: b.id, Name: b.name, Input: wire.Input(b.input.String())}})
}

// end closes what the service left open and passes on the Stop.
func (a *answer) end() {
	for len(a.open) > 0 {
		var index int64
		place := -1
		for i, b := range a.open { // in the order in which they began
			if place < 0 || b.place < place {
				index, place = i, b.place
			}
		}
		a.close(a.open[index])
		delete(a.open, index)
	}
	if signature := a.layout.Signature(); signature != "" {
		a.Emit(provider.ThinkingSignature{Text: signature})
	}
	a.Emit(provider.Stop{Usage: a.usage, Reason: a.reason})
}

// count takes over the usage, which is stated at the beginning and, cumulative,
// at the end, there in part. The service counts what is read from the cache and
// written to it apart from the input; here they are part of it.
func (a *answer) count(usage gjson.Result) {
	u := &a.usage
	fresh := u.InputTokens - u.CacheReadInputTokens - u.CacheCreationInputTokens
	for member, to := range map[string]*uint64{
		"input_tokens": &fresh, "output_tokens": &u.OutputTokens,
		"cache_read_input_tokens": &u.CacheReadInputTokens, "cache_creation_input_tokens": &u.CacheCreationInputTokens,
	} {
		if n := usage.Get(member); n.Type == gjson.Number {
			*to = wire.Count(n.Int())
		}
	}
	u.InputTokens = fresh + u.CacheReadInputTokens + u.CacheCreationInputTokens
	for member, to := range map[string]**uint64{
		"cache_creation.ephemeral_5m_input_tokens": &u.CacheCreation5m, "cache_creation.ephemeral_1h_input_tokens": &u.CacheCreation1h,
	} {
		if n := usage.Get(member); n.Type == gjson.Number {
			count := wire.Count(n.Int())
			*to = &count
		}
	}
}

func finishReason(reason sdk.StopReason) provider.FinishReason {
	switch reason {
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded,
		sdk.StopReasonPauseTurn: // a long turn of the service's own tools, of which there are none here
		return provider.FinishLength
	case sdk.StopReasonToolUse:
		return provider.FinishToolCalls
	case sdk.StopReasonRefusal:
		return provider.FinishFiltered
	default:
		return provider.FinishStop
	}
}
