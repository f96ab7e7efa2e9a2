package openai

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/wire"
	"nexus.internal/protocol"
)

// ask makes one request and passes on its stream.
func (c *client) ask(ctx context.Context, t *wire.Try, params sdk.ChatCompletionNewParams) error {
	stream := c.completions.NewStreaming(ctx, params, option.WithHTTPClient(t))
	defer func() { _ = stream.Close() }() // how the answer ended is known by then
	a := answer{Try: t, model: params.Model}
	for stream.Next() {
		if err := a.take(stream.Current()); err != nil {
			return err
		}
		if t.Left() {
			return nil
		}
	}
	err := stream.Err()
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
		err = wire.ReadError(e.Event.Data)
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
	model        string // that was asked
	finished     bool   // a finish_reason was seen
	reason       provider.FinishReason
	said         wire.Text
	refused      wire.Text
	thought      wire.Text
	saidBytes    int  // of the text that was passed on
	thoughtBytes int  // of the reasoning that was passed on
	content      bool // a reasoning_content was seen, empty or not
	details      merged
	calls        []*call
	usage        protocol.TurnUsage
}

// call is a tool call whose input is still coming.
type call struct {
	index int64
	sent  string // the id that the service gave it; "" for none
	id    string // ours: the service's, unless it gave none or gave it twice
	name  string
	input strings.Builder
	last  wire.Text // the end of input
	begun bool      // its CallStart was passed on
}

// take passes on what one event says.
func (a *answer) take(chunk sdk.ChatCompletionChunk) error {
	raw := chunk.RawJSON()
	if gjson.Get(raw, "object").Str == "error" {
		return wire.ReadError([]byte(raw)) // vLLM
	}
	if choices := gjson.Get(raw, "choices"); choices.Exists() && choices.Type != gjson.Null && !choices.IsArray() {
		return &wire.MalformedError{Problem: `member "choices" is not an array`}
	}
	if name := protocol.CutModelName(chunk.Model); name != "" {
		a.usage.Model = &name
	}
	if chunk.JSON.Usage.Valid() {
		a.count(chunk.Usage)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		delta := choice.Delta
		object := delta.RawJSON()
		a.think(a.thought.Next(thoughts(object)))
		a.content = a.content || gjson.Get(object, string(content)).Type == gjson.String
		a.details.take(object)
		a.say(a.said.Next(delta.Content, object, "content") + a.refused.Next(delta.Refusal, object, "refusal"))
		for _, piece := range delta.ToolCalls {
			a.takeCall(piece)
		}
		if choice.FinishReason != "" {
			a.finished = true
			a.reason = finishReason(choice.FinishReason)
		}
	}
	return nil
}

func (a *answer) think(thought string) {
	if thought != "" {
		a.thoughtBytes += len(thought)
		a.Emit(provider.Thinking{Text: thought})
	}
}

func (a *answer) say(said string) {
	if said != "" {
		a.saidBytes += len(said)
		a.Emit(provider.Text{Text: said})
	}
}

// takeCall adds a piece to the call it belongs to. The id and the name come
// with the first one. A call without a name begins at the end of the answer,
// since its name may still come.
func (a *answer) takeCall(piece sdk.ChatCompletionChunkChoiceDeltaToolCall) {
	c := a.call(piece.Index, piece.ID)
	if c.name == "" {
		c.name = piece.Function.Name
	}
	fragment := c.last.Next(piece.Function.Arguments, piece.RawJSON(), "function.arguments")
	c.input.WriteString(fragment)
	switch {
	case c.begun && fragment != "":
		a.Emit(provider.CallInput{ID: c.id, Fragment: fragment})
	case !c.begun && c.name != "":
		a.begin(c)
	}
}

// begin passes on the beginning of a call and its input so far.
func (a *answer) begin(c *call) {
	c.begun = true
	a.Emit(provider.CallStart{ID: c.id, Name: c.name})
	if c.input.Len() > 0 {
		a.Emit(provider.CallInput{ID: c.id, Fragment: c.input.String()})
	}
}

// call finds the call that a piece belongs to: by index, as the interface has
// it, unless a service gives every call the index 0 and an id of its own.
func (a *answer) call(index int64, id string) *call {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if c := a.calls[i]; c.index == index && (id == "" || id == c.sent) {
			return c
		}
	}
	c := &call{index: index, sent: id, id: id}
	for n := index; c.id == "" || a.taken(c.id); n++ {
		c.id = fmt.Sprintf("call_%d", n)
	}
	a.calls = append(a.calls, c)
	return c
}

// taken reports whether a call of this answer bears the id.
func (a *answer) taken(id string) bool {
	return slices.ContainsFunc(a.calls, func(c *call) bool { return c.id == id })
}

// end passes on what was held back, the whole calls, what is to go back with the
// answer, and the Stop.
func (a *answer) end() {
	a.think(a.thought.Rest())
	a.say(a.said.Rest() + a.refused.Rest())
	for _, c := range a.calls {
		rest := c.last.Rest()
		c.input.WriteString(rest)
		switch {
		case !c.begun:
			a.begin(c)
		case rest != "":
			a.Emit(provider.CallInput{ID: c.id, Fragment: rest})
		}
	}
	for _, c := range a.calls {
		a.Emit(provider.Call{ToolCall: protocol.ToolCall{ID: c.id, Name: c.name, Input: wire.Input(c.input.String())}})
	}
	if signature := a.layout().Signature(); signature != "" {
		a.Emit(provider.ThinkingSignature{Text: signature})
	}
	a.Emit(provider.Stop{Usage: a.usage, Reason: a.reason})
}

// count takes over the usage, which a service may state more than once. The
// tokens of the cache are part of the input tokens; OpenRouter counts those
// that were written, and DeepSeek has a member of its own for those read.
func (a *answer) count(u sdk.CompletionUsage) {
	a.usage.InputTokens = wire.Count(u.PromptTokens)
	a.usage.OutputTokens = wire.Count(u.CompletionTokens)
	a.usage.CacheReadInputTokens = wire.Count(u.PromptTokensDetails.CachedTokens)
	if hit := gjson.Get(u.RawJSON(), "prompt_cache_hit_tokens"); a.usage.CacheReadInputTokens == 0 {
		a.usage.CacheReadInputTokens = wire.Count(hit.Int())
	}
	written := gjson.Get(u.RawJSON(), "prompt_tokens_details.cache_write_tokens")
	a.usage.CacheCreationInputTokens = wire.Count(written.Int())
}

func finishReason(reason string) provider.FinishReason {
	switch reason {
	case "length":
		return provider.FinishLength
	case "tool_calls", "function_call":
		return provider.FinishToolCalls
	case "content_filter":
		return provider.FinishFiltered
	default:
		return provider.FinishStop
	}
}
