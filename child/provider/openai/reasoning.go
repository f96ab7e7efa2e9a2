package openai

import (
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/openai/openai-go/v3"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider/wire"
	"nexus.internal/protocol"
)

// The kinds of reasoning that go back are named after the member of an answer in
// which they come and in which the service wants them.
const (
	// content is reasoning_content (DeepSeek, vLLM, llama.cpp): the text.
	content wire.Kind = "reasoning_content"
	// details is reasoning_details (OpenRouter): Opaque is the array.
	details wire.Kind = "reasoning_details"
)

// thoughts reads what compatible services add to a delta: reasoning_content, or
// reasoning (OpenRouter, Ollama). It gives the text, the delta and the member.
func thoughts(delta string) (thought, object, member string) {
	for _, member := range []string{string(content), "reasoning"} {
		if value := gjson.Get(delta, member); value.Type == gjson.String && value.Str != "" {
			return value.Str, delta, member
		}
	}
	return "", delta, ""
}

// layout is how the answer was made up. The details hold all that the text says,
// and more. An answer with calls and an empty reasoning_content has one: there
// are services that want it back.
func (a *answer) layout() wire.Layout {
	l := wire.Layout{Model: a.model}
	if array := a.details.array(); array != "" {
		l.Blocks = append(l.Blocks, wire.Block{Kind: details, Bytes: a.thoughtBytes, Opaque: array})
	} else if a.content && (a.thoughtBytes > 0 || len(a.calls) > 0) {
		l.Blocks = append(l.Blocks, wire.Block{Kind: content, Bytes: a.thoughtBytes})
	}
	if a.saidBytes > 0 {
		l.Blocks = append(l.Blocks, wire.Block{Kind: wire.KindText, Bytes: a.saidBytes})
	}
	for range a.calls {
		l.Blocks = append(l.Blocks, wire.Block{Kind: wire.KindCall})
	}
	return l
}

// giveBack adds the reasoning of an answer to what goes out of it. It reports
// whether there was any: the model's own, in an answer that is what it was.
func giveBack(said *sdk.ChatCompletionAssistantMessageParam, m protocol.Message, model string) bool {
	blocks, ok := wire.Reasoned(m, model, content, details)
	if !ok {
		return false
	}
	members := map[string]any{}
	for _, b := range blocks {
		switch b.Kind {
		case content:
			members[string(content)] = m.Thinking
		case details:
			array := jsontext.Value(b.Opaque)
			if array.Kind() != '[' || !array.IsValid() {
				return false
			}
			members[string(details)] = array
		case wire.KindText, wire.KindCall: // go out as ever
		}
	}
	said.SetExtraFields(members)
	return true
}
