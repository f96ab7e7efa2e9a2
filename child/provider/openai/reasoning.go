package openai

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

// The kinds of reasoning that go back are named after the member of an answer in
// which they come and in which the service wants them.
const (
	// content is reasoning_content (DeepSeek, vLLM, llama.cpp): the text.
	content httpapi.Kind = "reasoning_content"
	// details is reasoning_details (OpenRouter): Opaque is the array.
	details httpapi.Kind = "reasoning_details"
	// extra is the extra_content of calls (Gemini): Opaque is the array of those of all calls, with
	// null for none.
	extra httpapi.Kind = "extra_content"
)

// thought is a piece of the reasoning: reasoning_content, or else reasoning.
func (d delta) thought() jsontext.Value {
	for _, piece := range []jsontext.Value{d.ReasoningContent, d.Reasoning} {
		if httpapi.IsString(piece) && string(piece) != `""` {
			return piece
		}
	}
	return nil
}

// reasoningBlocks is how the answer was made up. The details hold all that the text says,
// and more. An answer with calls and an empty reasoning_content has one: there
// are services that want it back.
func (a *answer) reasoningBlocks() httpapi.ReasoningBlocks {
	l := httpapi.ReasoningBlocks{Model: a.model}
	if array := a.details.array(); array != "" {
		l.Blocks = append(l.Blocks, httpapi.Block{Kind: details, Bytes: a.thoughtBytes, Opaque: array})
	} else if a.content && (a.thoughtBytes > 0 || len(a.calls) > 0) {
		l.Blocks = append(l.Blocks, httpapi.Block{Kind: content, Bytes: a.thoughtBytes})
	}
	if array := a.extras(); array != "" {
		l.Blocks = append(l.Blocks, httpapi.Block{Kind: extra, Opaque: array})
		if a.thoughtBytes > 0 && len(l.Blocks) == 1 {
			l.Blocks[0].Bytes = a.thoughtBytes
		}
	}
	if a.saidBytes > 0 {
		l.Blocks = append(l.Blocks, httpapi.Block{Kind: httpapi.KindText, Bytes: a.saidBytes})
	}
	for range a.calls {
		l.Blocks = append(l.Blocks, httpapi.Block{Kind: httpapi.KindCall})
	}
	return l
}

// extras are the extra_content of all calls; "" if there is none.
func (a *answer) extras() string {
	all, found := make([]jsontext.Value, len(a.calls)), false
	for i, c := range a.calls {
		if all[i] = c.extra; c.extra == nil {
			all[i] = jsontext.Value("null")
		} else {
			found = true
		}
	}
	if !found {
		return ""
	}
	data, err := marshal(all)
	if err != nil {
		return ""
	}
	return string(data)
}

// restoreReasoning adds the reasoning of an answer to what goes out of it. It reports
// whether there was any: the model's own, in an answer that is what it was.
func restoreReasoning(said *message, m protocol.Message, model string) bool {
	blocks, ok := httpapi.ReusableBlocks(m, model, content, details, extra)
	if !ok {
		return false
	}
	with := *said
	for _, b := range blocks {
		switch b.Kind {
		case content:
			with.ReasoningContent = &m.Thinking
		case details:
			array := jsontext.Value(b.Opaque)
			if array.Kind() != '[' || !array.IsValid() {
				return false
			}
			with.ReasoningDetails = array
		case extra:
			calls := gjson.Parse(b.Opaque).Array()
			if len(calls) != len(with.ToolCalls) {
				return false
			}
			with.ToolCalls = slices.Clone(with.ToolCalls)
			for i, c := range calls {
				if c.IsObject() {
					with.ToolCalls[i].ExtraContent = jsontext.Value(c.Raw)
				}
			}
		case httpapi.KindText, httpapi.KindCall: // go out as ever
		}
	}
	*said = with
	return true
}
