package anthropic

import (
	"slices"

	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

// The kinds of blocks that are Anthropic's. Opaque is the signature of the one,
// and the data of the other.
const (
	thought httpapi.Kind = "thinking"
	hidden  httpapi.Kind = "redacted"
)

func (d *draft) reasoned(m protocol.Message) ([]httpapi.Block, bool) {
	if d.forget {
		return nil, false
	}
	return httpapi.ReusableBlocks(m, d.Model, thought, hidden)
}

// assemble puts an answer together as it was.
func assemble(m protocol.Message, blocks []httpapi.Block, calls []block) []block {
	thinking, said := m.Thinking, m.Content
	var content []block
	for _, p := range blocks {
		switch p.Kind {
		case thought:
			content = append(content, block{Type: typeThinking, Thinking: new(thinking[:p.Bytes]), Signature: new(p.Opaque)})
			thinking = thinking[p.Bytes:]
		case hidden:
			content = append(content, block{Type: typeRedacted, Data: new(p.Opaque)})
		case httpapi.KindText:
			if !blank(said[:p.Bytes]) {
				content = append(content, textBlock(said[:p.Bytes]))
			}
			said = said[p.Bytes:]
		case httpapi.KindCall:
			content = append(content, calls[0])
			calls = calls[1:]
		}
	}
	return content
}

// thinking says how the model is to think. A budget is for conversations whose
// last answer with calls began with reasoning that goes back, since the service
// refuses others; there it is left out until the calls are done with.
func (d *draft) thinking(o Options, messages []protocol.Message) *thinkingConfig {
	switch o.Thinking {
	case ThinkingAdaptive:
		return &thinkingConfig{Type: o.Thinking, Display: "summarized"}
	case ThinkingDisabled:
		return &thinkingConfig{Type: o.Thinking}
	case ThinkingEnabled:
		budget := min(o.ThinkingTokens, d.maxTokens-1)
		if budget < minThinkingTokens || d.unsigned(messages) {
			return nil
		}
		return &thinkingConfig{Type: o.Thinking, BudgetTokens: budget}
	case ThinkingDefault:
	}
	return nil
}

// unsigned reports whether the results of calls come last, and the answers that
// asked for them do not begin with reasoning that goes back.
func (d *draft) unsigned(messages []protocol.Message) bool {
	first := -1 // the answer that the latest run of calls began with
	for i, m := range slices.Backward(messages) {
		if m.Role == protocol.RoleAssistant {
			if len(m.ToolCalls) == 0 && first < 0 {
				return false
			}
			first = i
		} else if m.Role == protocol.RoleUser && first >= 0 {
			break
		}
	}
	if first < 0 {
		return false
	}
	blocks, ok := d.reasoned(messages[first])
	return !ok || blocks[0].Kind != thought && blocks[0].Kind != hidden
}
