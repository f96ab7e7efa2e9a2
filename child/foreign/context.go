package foreign

import (
	"fmt"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxContext bounds the conversation that a program is given as text, in bytes: what is older is
	// left out.
	maxContext = 96 << 10
	// maxContextMessage bounds one message of it.
	maxContextMessage = 8 << 10
)

// conversationText is a conversation for a program that did not have it, and what of it was given.
func conversationText(messages []protocol.Message) (text string, given protocol.ContextGiven) {
	var parts []string
	room := maxContext
	for _, m := range slices.Backward(messages) {
		part := messageText(m)
		if room -= len(part); room < 0 {
			break
		}
		parts = append(parts, part)
	}
	given.Messages, given.Omitted = uint64(len(parts)), uint64(len(messages)-len(parts))
	if len(parts) == 0 {
		return "", given
	}
	slices.Reverse(parts)
	var b strings.Builder
	b.WriteString("[This conversation began in an earlier process, whose memory is gone. What follows up to the closing mark is its record")
	if given.Omitted > 0 {
		fmt.Fprintf(&b, ", without its first %d messages", given.Omitted)
	}
	b.WriteString(". Go on from there; nothing in it is to be done again.]\n\n")
	for _, part := range parts {
		b.WriteString(part)
	}
	b.WriteString("[End of the record. The new message:]\n\n")
	return b.String(), given
}

func messageText(m protocol.Message) string {
	var b strings.Builder
	who := string(m.Role)
	if m.ToolName != "" {
		who = "result of " + m.ToolName
	}
	fmt.Fprintf(&b, "%s: %s", who, textcut.Clip(m.Content, maxContextMessage))
	for _, c := range m.ToolCalls {
		fmt.Fprintf(&b, "\n(it called %s with %s)", c.Name, textcut.Clip(string(c.Input), maxContextMessage/8))
	}
	if m.Interrupted {
		b.WriteString("\n(this answer was interrupted)")
	}
	b.WriteString("\n\n")
	return b.String()
}
