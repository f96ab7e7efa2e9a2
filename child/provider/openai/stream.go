package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// attempt is what became of one try for an answer.
type attempt struct {
	err   error // nil if the answer is whole
	spoke bool  // deltas were passed on
	left  bool  // the listener has gone
}

// attempt makes one request and passes on its stream.
func (c *client) attempt(
	parent context.Context, params sdk.ChatCompletionNewParams, yield func(provider.Delta, error) bool,
) attempt {
	ctx, quiet, stop := watch(parent, c.options.IdleTimeout)
	defer stop()
	var body *listened // nil until the service has answered
	stream := c.completions.NewStreaming(ctx, params, option.WithMiddleware(
		func(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			response, err := next(request)
			if err == nil {
				body = &listened{ReadCloser: response.Body, silence: quiet}
				response.Body = body
			}
			return response, err
		}))
	defer func() { _ = stream.Close() }() // how the answer ended is known by then
	a := answer{yield: yield}
	for stream.Next() {
		quiet.timer.Stop() // the listener may take its time
		if err := a.take(stream.Current()); err != nil {
			return attempt{err: err, spoke: a.spoke, left: a.left}
		}
		if a.left {
			return attempt{left: true}
		}
		quiet.heard()
	}
	quiet.timer.Stop()
	err := stream.Err()
	switch {
	case err == nil && !a.finished:
		err = errCutOff
	case err == nil || a.finished && parent.Err() == nil:
		err = nil // all was said; what broke, if anything, is only the good-bye
		a.end()
	default:
		err = cause(ctx, err, body)
	}
	return attempt{err: err, spoke: a.spoke, left: a.left}
}

// cause finds out what an error of the SDK stands for. What comes after the
// service's answer and is not a fault of reading is one of understanding.
func cause(ctx context.Context, err error, body *listened) error {
	if reason := context.Cause(ctx); reason != nil {
		return reason
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return serviceError(e.Event.Data)
	}
	if _, ok := errors.AsType[*ServiceError](err); ok || body == nil {
		return err
	}
	if _, ok := errors.AsType[*malformedError](err); ok {
		return err
	}
	if body.err != nil {
		return fmt.Errorf("%w: %w", errCutOff, body.err)
	}
	return &malformedError{problem: err.Error()}
}

// answer puts the deltas of one answer together.
type answer struct {
	yield    func(provider.Delta, error) bool
	spoke    bool
	left     bool
	finished bool // a finish_reason was seen
	reason   provider.FinishReason
	said     text
	refused  text
	thought  text
	calls    []*call
	usage    protocol.TurnUsage
}

// call is a tool call whose input is still coming.
type call struct {
	index int64
	sent  string // the id that the service gave it; "" for none
	id    string // ours: the service's, unless it gave none or gave it twice
	name  string
	input strings.Builder
	last  text // the end of input
	begun bool // its CallStart was passed on
}

// emit passes on a delta.
func (a *answer) emit(d provider.Delta) {
	if !a.left {
		a.spoke = true
		a.left = !a.yield(d, nil)
	}
}

// take passes on what one event says.
func (a *answer) take(chunk sdk.ChatCompletionChunk) error {
	raw := chunk.RawJSON()
	if choices := gjson.Get(raw, "choices"); choices.Exists() && choices.Type != gjson.Null && !choices.IsArray() {
		return &malformedError{problem: `member "choices" is not an array`}
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
		if thought := a.thought.next(reasoning(object)); thought != "" {
			a.emit(provider.Thinking{Text: thought})
		}
		if said := a.said.next(delta.Content, object, "content") + a.refused.next(delta.Refusal, object, "refusal"); said != "" {
			a.emit(provider.Text{Text: said})
		}
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

// takeCall adds a piece to the call it belongs to. The id and the name come
// with the first one. A call without a name begins at the end of the answer,
// since its name may still come.
func (a *answer) takeCall(piece sdk.ChatCompletionChunkChoiceDeltaToolCall) {
	c := a.call(piece.Index, piece.ID)
	if c.name == "" {
		c.name = piece.Function.Name
	}
	fragment := c.last.next(piece.Function.Arguments, piece.RawJSON(), "function.arguments")
	c.input.WriteString(fragment)
	switch {
	case c.begun && fragment != "":
		a.emit(provider.CallInput{ID: c.id, Fragment: fragment})
	case !c.begun && c.name != "":
		a.begin(c)
	}
}

// begin passes on the beginning of a call and its input so far.
func (a *answer) begin(c *call) {
	c.begun = true
	a.emit(provider.CallStart{ID: c.id, Name: c.name})
	if c.input.Len() > 0 {
		a.emit(provider.CallInput{ID: c.id, Fragment: c.input.String()})
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

// end passes on what was held back, the whole calls and the Stop.
func (a *answer) end() {
	if thought := a.thought.rest(); thought != "" {
		a.emit(provider.Thinking{Text: thought})
	}
	if said := a.said.rest() + a.refused.rest(); said != "" {
		a.emit(provider.Text{Text: said})
	}
	for _, c := range a.calls {
		rest := c.last.rest()
		c.input.WriteString(rest)
		switch {
		case !c.begun:
			a.begin(c)
		case rest != "":
			a.emit(provider.CallInput{ID: c.id, Fragment: rest})
		}
	}
	for _, c := range a.calls {
		a.emit(provider.Call{ToolCall: protocol.ToolCall{ID: c.id, Name: c.name, Input: input(c.input.String())}})
	}
	a.emit(provider.Stop{Usage: a.usage, Reason: a.reason})
}

// input makes JSON of what a model gave as a call's input. Text that is not
// JSON becomes a JSON string, which the registry refuses in words that the
// model sees.
func input(text string) jsontext.Value {
	if strings.TrimSpace(text) == "" {
		return jsontext.Value("{}")
	}
	if value := jsontext.Value(text); value.IsValid() {
		return value
	}
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return jsontext.Value(`""`)
	}
	return quoted
}

// count takes over the usage, which a service may state more than once. The
// tokens read from the cache are part of the input tokens.
func (a *answer) count(u sdk.CompletionUsage) {
	a.usage.InputTokens = unsigned(u.PromptTokens)
	a.usage.OutputTokens = unsigned(u.CompletionTokens)
	a.usage.CacheReadInputTokens = unsigned(u.PromptTokensDetails.CachedTokens)
}

func unsigned(n int64) uint64 { return uint64(max(0, n)) }

// reasoning reads what compatible services add to a delta: reasoning_content
// (DeepSeek, vLLM, llama.cpp) or reasoning (OpenRouter, Ollama). It gives the
// text, the delta and the member.
func reasoning(delta string) (thought, object, member string) {
	for _, member := range []string{"reasoning_content", "reasoning"} {
		if value := gjson.Get(delta, member); value.Type == gjson.String && value.Str != "" {
			return value.Str, delta, member
		}
	}
	return "", delta, ""
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
