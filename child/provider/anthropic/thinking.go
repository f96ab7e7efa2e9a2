package anthropic

import (
	"slices"
	"strconv"
	"strings"

	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

// The kinds of blocks that are Anthropic's. Opaque is the signature of the one,
// and the data of the other.
const (
	thought httpapi.Kind = "thinking"
	hidden  httpapi.Kind = "redacted"
)

// efforts are the tokens that a model of a fixed budget spends on reasoning.
var efforts = map[string]int{"low": 2_000, "medium": 8_000, "high": 24_000}

// adapts reports whether a model decides itself how long it reasons, as those since 4.6 do, and
// takesEffort whether it can be told how much to spend, as these and Opus 4.5.
func adapts(model string) bool { return !before(model, 4, 6) }

func takesEffort(model string) bool {
	return adapts(model) || strings.HasPrefix(model, "claude-opus-4-5")
}

// before reports whether a model is of an earlier version, as claude-sonnet-4-5-20250929 is of 4.5. A
// model whose name says no version is of the latest.
func before(model string, major, minor int) bool {
	var version []int
	for part := range strings.SplitSeq(strings.TrimPrefix(model, "claude-"), "-") {
		if n, err := strconv.Atoi(part); err == nil && n < 100 { // more is a day
			version = append(version, n)
		}
	}
	switch len(version) {
	case 0:
		return false
	case 1:
		version = append(version, 0)
	}
	return version[0] < major || version[0] == major && version[1] < minor
}

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
	thinking, budget := o.Thinking, o.ThinkingTokens
	if d.Parameters != nil && d.Parameters.Effort != "" && thinking == ThinkingDefault {
		if thinking, budget = ThinkingEnabled, efforts[d.Parameters.Effort]; adapts(d.Model) {
			thinking = ThinkingAdaptive
		}
	}
	switch thinking {
	case ThinkingAdaptive:
		return &thinkingConfig{Type: thinking, Display: "summarized"}
	case ThinkingDisabled:
		return &thinkingConfig{Type: thinking}
	case ThinkingEnabled:
		budget = min(budget, d.maxTokens-1)
		if budget < minThinkingTokens || d.unsigned(messages) {
			return nil
		}
		return &thinkingConfig{Type: thinking, BudgetTokens: budget}
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
