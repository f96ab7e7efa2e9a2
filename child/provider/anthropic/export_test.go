package anthropic

import (
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// Fits reports whether a message that is signed can go back as it was.
func Fits(model string, m protocol.Message) bool {
	d := draft{Request: provider.Request{Model: model}, used: map[string]bool{}}
	blocks, ok := d.reasoned(m)
	if ok {
		assemble(m, blocks, d.calls(m.ToolCalls))
	}
	return ok || m.ThinkingSignature == ""
}
