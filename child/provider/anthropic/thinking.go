package anthropic

import (
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// maxSignature bounds the JSON of a layout, in bytes; a larger one is not kept.
const maxSignature = 256 << 10

// layout is what a ThinkingSignature holds: how an answer with reasoning was
// made up. The service wants such an answer back as it was, block by block.
type layout struct {
	// Model is the one that was asked: another one cannot read what it signed.
	Model  string  `json:"model"`
	Blocks []piece `json:"blocks"`
}

// piece is one block of an answer.
type piece struct {
	Kind kind `json:"kind"`
	// Bytes of the message's Thinking or Content that are this block.
	Bytes int `json:"bytes,omitzero" wire:"default"`
	// Opaque is the signature of reasoning, or the data of what is hidden.
	Opaque string `json:"opaque,omitzero" wire:"default"`
}

type kind string

const (
	thought kind = "thinking"
	hidden  kind = "redacted"
	text    kind = "text"
	use     kind = "call"
)

// signature is a layout in writing; "" for an answer without reasoning, or with
// more of it than can be kept.
func (l layout) signature() string {
	if !slices.ContainsFunc(l.Blocks, func(p piece) bool { return p.Kind == thought || p.Kind == hidden }) {
		return ""
	}
	data, err := json.Marshal(l)
	if err != nil || len(data) > maxSignature {
		return ""
	}
	return string(data)
}

// reasoned finds the blocks of an answer whose reasoning can go back: it was
// signed by this model, and the message is what it was.
func (d *draft) reasoned(m protocol.Message) ([]piece, bool) {
	var l layout
	if d.forget || m.ThinkingSignature == "" || m.Interrupted ||
		strict.Unmarshal([]byte(m.ThinkingSignature), &l, strict.RejectUnknown) != nil || l.Model != d.Model {
		return nil, false
	}
	thinking, said, calls := len(m.Thinking), len(m.Content), len(m.ToolCalls)
	for _, p := range l.Blocks {
		switch p.Kind {
		case thought:
			thinking -= p.Bytes
		case text:
			said -= p.Bytes
		case use:
			calls--
		case hidden:
		default:
			return nil, false
		}
		// Each time, so that nothing overflows.
		if p.Bytes < 0 || thinking < 0 || said < 0 || calls < 0 {
			return nil, false
		}
	}
	return l.Blocks, thinking == 0 && said == 0 && calls == 0
}

// assemble puts an answer together as it was.
func assemble(m protocol.Message, blocks []piece, calls []sdk.ContentBlockParamUnion) []sdk.ContentBlockParamUnion {
	thinking, said := m.Thinking, m.Content
	var content []sdk.ContentBlockParamUnion
	for _, p := range blocks {
		switch p.Kind {
		case thought:
			content = append(content, sdk.NewThinkingBlock(p.Opaque, thinking[:p.Bytes]))
			thinking = thinking[p.Bytes:]
		case hidden:
			content = append(content, sdk.NewRedactedThinkingBlock(p.Opaque))
		case text:
			if !blank(said[:p.Bytes]) {
				content = append(content, sdk.NewTextBlock(said[:p.Bytes]))
			}
			said = said[p.Bytes:]
		case use:
			content = append(content, calls[0])
			calls = calls[1:]
		}
	}
	return content
}

// thinking says how the model is to think. A budget is for conversations whose
// last answer with calls began with reasoning that goes back, since the service
// refuses others; there it is left out until the calls are done with.
func (d *draft) thinking(o Options, messages []protocol.Message) sdk.ThinkingConfigParamUnion {
	switch o.Thinking {
	case ThinkingAdaptive:
		return sdk.ThinkingConfigParamUnion{OfAdaptive: &sdk.ThinkingConfigAdaptiveParam{
			Display: sdk.ThinkingConfigAdaptiveDisplaySummarized,
		}}
	case ThinkingDisabled:
		return sdk.ThinkingConfigParamUnion{OfDisabled: &sdk.ThinkingConfigDisabledParam{}}
	case ThinkingEnabled:
		budget := min(o.ThinkingTokens, d.maxTokens-1)
		if budget < minThinkingTokens || d.unsigned(messages) {
			break
		}
		// As an override, since the SDK writes a warning to stderr otherwise.
		return param.Override[sdk.ThinkingConfigParamUnion](sdk.ThinkingConfigEnabledParam{BudgetTokens: int64(budget)})
	case ThinkingDefault:
	}
	return sdk.ThinkingConfigParamUnion{}
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
