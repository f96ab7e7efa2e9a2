package openai

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	answeredBy   *string // the model that the service names; nil if it names none
}

// call is a tool call whose input is still coming.
type call struct {
	index uint64
	sent  string // the id that the service gave it; "" for none
	id    string // ours: the service's, unless it gave none or gave it twice
	name  string
	input strings.Builder
	last  httpapi.Text // the end of input
	extra jsontext.Value
	begun bool // its CallStart was passed on
}

// take passes on what one event says.
func (a *answer) take(sent eventstream.Event) error {
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
		a.answeredBy = &name
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
		if reason := choice.FinishReason; reason != "" && !brokeOff[reason] {
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
	if piece.ExtraContent.Kind() == '{' {
		c.extra = piece.ExtraContent.Clone()
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
	usage := a.Usage()
	usage.Model = a.answeredBy
	a.Emit(provider.Stop{Usage: usage, Reason: a.reason})
}

// brokeOff are the finish reasons of answers that the service could not end: of Mistral
// and OpenRouter, vLLM, and DeepSeek. Such an answer has no end.
var brokeOff = map[string]bool{"error": true, "abort": true, "insufficient_system_resource": true}

func finishReason(reason string) provider.FinishReason {
	switch reason {
	case "length", "model_length": // the second is Mistral's
		return provider.FinishLength
	case "tool_calls", "function_call":
		return provider.FinishToolCalls
	case "content_filter":
		return provider.FinishFiltered
	default:
		return provider.FinishStop
	}
}

// chunk is one event of an answer.
type chunk struct {
	Object  string         `json:"object"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Error   jsontext.Value `json:"error"`
}

// choice is one of several answers. One is asked for.
type choice struct {
	Index        uint64 `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

// delta is what is added to an answer. Texts are as they came, for httpapi.Text.
type delta struct {
	Content          jsontext.Value `json:"content"`
	Refusal          jsontext.Value `json:"refusal"`
	ReasoningContent jsontext.Value `json:"reasoning_content"` // DeepSeek, vLLM, llama.cpp
	Reasoning        jsontext.Value `json:"reasoning"`         // OpenRouter, Ollama
	ReasoningDetails jsontext.Value `json:"reasoning_details"` // OpenRouter
	ToolCalls        []callPiece    `json:"tool_calls"`
}

// callPiece is a piece of a call.
type callPiece struct {
	Index    uint64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
	ExtraContent jsontext.Value `json:"extra_content"` // Gemini: the signature of its reasoning
}

// modelList is the answer to GET /models.
type modelList struct {
	Data []model `json:"data"`
}

// model is what services say of a model: OpenAI its id alone, OpenRouter a name
// and context_length, vLLM max_model_len, llama.cpp what it was trained with.
type model struct {
	ID            string         `json:"id"`
	Name          string         `json:"name"`
	ContextLength uint64         `json:"context_length"`
	MaxModelLen   uint64         `json:"max_model_len"`
	ContextWindow uint64         `json:"context_window"`
	MaxLength     uint64         `json:"max_context_length"`
	Meta          jsontext.Value `json:"meta"` // llama.cpp's; another service may have anything there
}

// trained is how many tokens llama.cpp's model was trained with; 0 if it does not
// say.
func (m model) trained() uint64 {
	var meta struct {
		Context uint64 `json:"n_ctx_train"`
	}
	if m.Meta.Kind() != '{' || httpapi.Decode(m.Meta, &meta) != nil {
		return 0
	}
	return meta.Context
}
