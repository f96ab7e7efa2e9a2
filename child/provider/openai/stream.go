package openai

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

// ask makes one request and passes on its stream.
func (c *client) ask(ctx context.Context, t *httpapi.Attempt, question request) error {
	a := answer{Attempt: t, model: question.Model}
	err := t.Stream(ctx, "/chat/completions", question, a.take)
	if err := t.Outcome(ctx, err, a.finished); err != nil {
		return err
	}
	a.end()
	return nil
}

// answer puts the deltas of one answer together.
type answer struct {
	*httpapi.Attempt
	model        string // that was asked
	finished     bool   // a finish_reason was seen
	reason       provider.FinishReason
	said         httpapi.Text
	refused      httpapi.Text
	thought      httpapi.Text
	saidBytes    int  // of the text that was passed on
	thoughtBytes int  // of the reasoning that was passed on
	content      bool // a reasoning_content was seen, empty or not
	details      merged
	calls        []*call
	usage        protocol.TurnUsage
}

// call is a tool call whose input is still coming.
type call struct {
	index uint64
	sent  string // the id that the service gave it; "" for none
	id    string // ours: the service's, unless it gave none or gave it twice
	name  string
	input strings.Builder
	last  httpapi.Text // the end of input
	begun bool         // its CallStart was passed on
}

// take passes on what one event says.
func (a *answer) take(sent httpapi.Event) error {
	if bytes.HasPrefix(sent.Data, []byte("[DONE]")) {
		return io.EOF
	}
	var c chunk
	if err := httpapi.Decode(sent.Data, &c); err != nil {
		return err
	}
	if c.Object == "error" || len(c.Error) > 0 && c.Error.Kind() != 'n' { // the one is vLLM's
		return httpapi.ReadError(sent.Data)
	}
	if name := protocol.CutModelName(c.Model); name != "" {
		a.usage.Model = &name
	}
	if c.Usage != nil {
		a.count(c.Usage)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		d := choice.Delta
		a.think(a.thought.Next(d.thought()))
		a.content = a.content || httpapi.IsString(d.ReasoningContent)
		a.details.take(d.ReasoningDetails)
		a.say(a.said.Next(d.Content) + a.refused.Next(d.Refusal))
		for _, piece := range d.ToolCalls {
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
func (a *answer) takeCall(piece callPiece) {
	c := a.call(piece.Index, piece.ID)
	if c.name == "" {
		c.name = piece.Function.Name
	}
	fragment := c.last.Next(piece.Function.Arguments)
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
func (a *answer) call(index uint64, id string) *call {
	for i := len(a.calls) - 1; i >= 0; i-- {
		if c := a.calls[i]; c.index == index && (id == "" || id == c.sent) {
			return c
		}
	}
	c := &call{index: index, sent: id, id: id}
	for n := index; c.id == "" || a.hasCall(c.id); n++ {
		c.id = fmt.Sprintf("call_%d", n)
	}
	a.calls = append(a.calls, c)
	return c
}

// hasCall reports whether a call of this answer bears the id.
func (a *answer) hasCall(id string) bool {
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
		a.Emit(provider.Call{ToolCall: protocol.ToolCall{ID: c.id, Name: c.name, Input: httpapi.Input(c.input.String())}})
	}
	if signature := a.reasoningBlocks().Signature(); signature != "" {
		a.Emit(provider.ThinkingSignature{Text: signature})
	}
	a.Emit(provider.Stop{Usage: a.usage, Reason: a.reason})
}

// count takes over the usage, which a service may state more than once. The
// tokens of the cache are part of the input tokens; OpenRouter counts those
// that were written, and DeepSeek has a member of its own for those read.
func (a *answer) count(u *usage) {
	a.usage.InputTokens = u.Prompt
	a.usage.OutputTokens = u.Completion
	a.usage.CacheReadInputTokens = cmp.Or(u.Details.Cached, u.CacheHit)
	a.usage.CacheCreationInputTokens = u.Details.Written
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
