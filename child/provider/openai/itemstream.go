package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
	"nexus.internal/protocol/eventstream"
)

func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// maxItems bounds the items of one answer.
const maxItems = 1024

// itemsAnswer puts the deltas of one answer of the responses together.
type itemsAnswer struct {
	*httpapi.Attempt
	model      string // that was asked
	finished   bool   // the response has ended
	reason     provider.FinishReason
	items      map[uint64]*outputItem // by output_index
	answeredBy *string
}

// outputItem is a message, a call or reasoning that is still coming.
type outputItem struct {
	kind  httpapi.Kind // "" for what is not known here
	bytes int          // of what was passed on
	text  httpapi.Text // the end of it
	part  uint64       // of a summary
	back  string       // reasoning as it goes back; "" if it cannot

	id, name string // of a call
	input    strings.Builder
}

// itemEvent is an event of the stream.
type itemEvent struct {
	Type         string         `json:"type"`
	OutputIndex  uint64         `json:"output_index"`
	SummaryIndex uint64         `json:"summary_index"`
	Delta        jsontext.Value `json:"delta"`
	Item         itemSent       `json:"item"`
	Response     jsontext.Value `json:"response"`
}

// itemSent is an item as the service sends it.
type itemSent struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Summary   jsontext.Value `json:"summary"`
	Encrypted string         `json:"encrypted_content"`
}

// responseSent is the response as a whole.
type responseSent struct {
	Model             string `json:"model"`
	IncompleteDetails struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// take passes on what one event says.
func (a *itemsAnswer) take(sent eventstream.Event) error {
	if bytes.HasPrefix(sent.Data, []byte("[DONE]")) {
		return io.EOF
	}
	var e itemEvent
	if err := httpapi.Decode(sent.Data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "error":
		return httpapi.ReadError(sent.Data)
	case "response.failed":
		return httpapi.ReadError(e.Response)
	case "response.completed", "response.incomplete":
		return a.finish(e)
	case "response.output_item.added":
		return a.open(e)
	case "response.output_text.delta", "response.refusal.delta":
		a.say(a.item(e.OutputIndex, httpapi.KindText), e.Delta)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		i := a.item(e.OutputIndex, reasoningItem)
		if e.SummaryIndex != i.part && i.bytes > 0 {
			a.think(i, "\n\n")
		}
		i.part = e.SummaryIndex
		a.think(i, i.text.Next(e.Delta))
	case "response.function_call_arguments.delta":
		if i := a.items[e.OutputIndex]; i != nil && i.kind == httpapi.KindCall {
			a.addInput(i, i.text.Next(e.Delta))
		}
	case "response.output_item.done":
		a.close(e)
	}
	return nil
}

// item is the item at that place of the output, which should have begun.
func (a *itemsAnswer) item(index uint64, kind httpapi.Kind) *outputItem {
	if i := a.items[index]; i != nil && i.kind == kind {
		return i
	}
	i := &outputItem{kind: kind}
	a.items[index] = i
	return i
}

// open begins an item.
func (a *itemsAnswer) open(e itemEvent) error {
	if len(a.items) >= maxItems {
		return &httpapi.MalformedError{Problem: fmt.Sprintf("an answer of more than %d items", maxItems)}
	}
	switch e.Item.Type {
	case "message":
		a.item(e.OutputIndex, httpapi.KindText)
	case "reasoning":
		a.item(e.OutputIndex, reasoningItem)
	case "function_call":
		a.call(e)
	}
	return nil
}

// call is the call at that place. Its CallStart goes out when it begins.
func (a *itemsAnswer) call(e itemEvent) *outputItem {
	if i := a.items[e.OutputIndex]; i != nil && i.kind == httpapi.KindCall {
		return i
	}
	i := a.item(e.OutputIndex, httpapi.KindCall)
	i.name = e.Item.Name
	i.id = cmp.Or(e.Item.CallID, e.Item.ID)
	for n := e.OutputIndex; i.id == "" || a.hasCall(i); n++ {
		i.id = fmt.Sprintf("call_%d", n)
	}
	a.Emit(provider.CallStart{ID: i.id, Name: i.name})
	return i
}

func (a *itemsAnswer) hasCall(of *outputItem) bool {
	for _, i := range a.items {
		if i != of && i.kind == httpapi.KindCall && i.id == of.id {
			return true
		}
	}
	return false
}

func (a *itemsAnswer) say(i *outputItem, piece jsontext.Value) { a.sayText(i, i.text.Next(piece)) }

func (a *itemsAnswer) sayText(i *outputItem, text string) {
	if text != "" {
		i.bytes += len(text)
		a.Emit(provider.Text{Text: text})
	}
}

func (a *itemsAnswer) think(i *outputItem, text string) {
	if text != "" {
		i.bytes += len(text)
		a.Emit(provider.Thinking{Text: text})
	}
}

func (a *itemsAnswer) addInput(i *outputItem, fragment string) {
	if fragment != "" {
		i.input.WriteString(fragment)
		a.Emit(provider.CallInput{ID: i.id, Fragment: fragment})
	}
}

// close takes an item that is whole: of a call the input that did not come in pieces, and of
// reasoning what goes back.
func (a *itemsAnswer) close(e itemEvent) {
	switch e.Item.Type {
	case "function_call":
		i := a.call(e)
		a.addInput(i, i.text.Rest())
		if i.input.Len() == 0 {
			a.addInput(i, i.text.Next(e.Item.Arguments))
		}
	case "reasoning":
		i := a.item(e.OutputIndex, reasoningItem)
		a.think(i, i.text.Rest())
		if e.Item.Encrypted == "" {
			return
		}
		summary := e.Item.Summary
		if summary.Kind() != '[' {
			summary = jsontext.Value("[]")
		}
		back, err := marshal(struct {
			Encrypted string         `json:"encrypted_content"`
			ID        string         `json:"id,omitzero"`
			Summary   jsontext.Value `json:"summary"`
			Type      string         `json:"type"`
		}{e.Item.Encrypted, e.Item.ID, summary, "reasoning"})
		if err == nil {
			i.back = string(back)
		}
	}
}

// finish takes the end of the response.
func (a *itemsAnswer) finish(e itemEvent) error {
	var whole responseSent
	if err := httpapi.Decode(e.Response, &whole); err != nil {
		return err
	}
	if name := protocol.CutModelName(whole.Model); name != "" {
		a.answeredBy = &name
	}
	a.finished, a.reason = true, provider.FinishStop
	switch {
	case whole.IncompleteDetails.Reason == "content_filter":
		a.reason = provider.FinishFiltered
	case e.Type == "response.incomplete":
		a.reason = provider.FinishLength
	}
	return io.EOF
}

// end passes on the whole calls, what is to go back with the answer, and the Stop.
func (a *itemsAnswer) end() {
	l := httpapi.ReasoningBlocks{Model: a.model}
	var calls []provider.Delta
	for _, index := range slices.Sorted(maps.Keys(a.items)) {
		i := a.items[index]
		switch i.kind {
		case httpapi.KindText:
			a.sayText(i, i.text.Rest())
			l.Blocks = append(l.Blocks, httpapi.Block{Kind: i.kind, Bytes: i.bytes})
		case httpapi.KindCall:
			a.addInput(i, i.text.Rest())
			calls = append(calls, provider.Call{ToolCall: protocol.ToolCall{ID: i.id, Name: i.name, Input: httpapi.Input(i.input.String())}})
			l.Blocks = append(l.Blocks, httpapi.Block{Kind: i.kind})
		case reasoningItem:
			l.Blocks = append(l.Blocks, httpapi.Block{Kind: i.kind, Bytes: i.bytes, Opaque: i.back})
		}
	}
	for _, c := range calls {
		a.Emit(c)
	}
	if signature := l.Signature(); signature != "" {
		a.Emit(provider.ThinkingSignature{Text: signature})
	}
	if len(calls) > 0 && a.reason == provider.FinishStop {
		a.reason = provider.FinishToolCalls
	}
	usage := a.Usage()
	usage.Model = a.answeredBy
	a.Emit(provider.Stop{Usage: usage, Reason: a.reason})
}
