package httpapi

import (
	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// MaxSignature bounds the JSON of ReasoningBlocks, in bytes; a larger one is not kept.
const MaxSignature = 256 << 10

// ReasoningBlocks is what a ThinkingSignature holds: how an answer with reasoning was
// made up, so that the service can have it back as it was.
type ReasoningBlocks struct {
	// Model is the one that was asked: another one cannot read what it signed.
	Model  string  `json:"model"`
	Blocks []Block `json:"blocks"`
}

// Block is a part of an answer.
type Block struct {
	Kind Kind `json:"kind"`
	// Bytes of the message's Content, for KindText, or of its Thinking.
	Bytes int `json:"bytes,omitzero" wire:"default"`
	// Opaque is what the service wants back with reasoning besides its text.
	Opaque string `json:"opaque,omitzero" wire:"default"`
}

// Kind says what a block is. All but those below are reasoning, each as one
// vendor has it.
type Kind string

// The kinds that all vendors share.
const (
	KindText Kind = "text" // of Content
	KindCall Kind = "call" // one of ToolCalls
)

func (k Kind) reasoning() bool { return k != KindText && k != KindCall }

// Signature is the JSON of the blocks; "" for an answer without reasoning, or with
// more of it than can be kept.
func (l ReasoningBlocks) Signature() string {
	if !hasReasoning(l.Blocks) {
		return ""
	}
	data, err := json.Marshal(l)
	if err != nil || len(data) > MaxSignature {
		return ""
	}
	return string(data)
}

func hasReasoning(blocks []Block) bool {
	for _, b := range blocks {
		if b.Kind.reasoning() {
			return true
		}
	}
	return false
}

// ReusableBlocks finds the blocks of an answer whose reasoning can go back: it came
// from this model, is of the kinds that the vendor knows, and the message is what
// it was. Then there is at least one block of reasoning.
func ReusableBlocks(m protocol.Message, model string, kinds ...Kind) ([]Block, bool) {
	var l ReasoningBlocks
	if m.ThinkingSignature == "" || m.Interrupted ||
		strict.Unmarshal([]byte(m.ThinkingSignature), &l, strict.RejectUnknown) != nil || l.Model != model {
		return nil, false
	}
	known := map[Kind]bool{KindText: true, KindCall: true}
	for _, k := range kinds {
		known[k] = true
	}
	thinking, said, calls := len(m.Thinking), len(m.Content), len(m.ToolCalls)
	for _, b := range l.Blocks {
		switch b.Kind {
		case KindText:
			said -= b.Bytes
		case KindCall:
			calls--
		default:
			thinking -= b.Bytes
		}
		// Each time, so that nothing overflows.
		if !known[b.Kind] || b.Bytes < 0 || thinking < 0 || said < 0 || calls < 0 {
			return nil, false
		}
	}
	return l.Blocks, thinking == 0 && said == 0 && calls == 0 && hasReasoning(l.Blocks)
}
