package terminal

import (
	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// past shows messages that were said before we came, in their order.
func (l look) past(messages []api.Message) []string {
	var lines []string
	for i, m := range messages {
		switch m.Role {
		case protocol.RoleUser:
			lines = append(lines, l.asked("you", m.Content)...)
		case protocol.RoleAssistant:
			lines = append(lines, l.answer(m.Content)...)
			for _, c := range m.ToolCalls {
				lines = append(lines, l.pastCall(c, messages[i+1:]))
			}
			if m.Interrupted {
				lines = append(lines, l.note("(interrupted)"))
			}
		case protocol.RoleTool, protocol.RoleSystem:
		}
	}
	return lines
}

// pastCall is the line of a call. Its result is among the results that come next: an id names a call
// of one message alone. One that failed or was refused looks as it did when it ended.
func (l look) pastCall(c protocol.ToolCall, following []api.Message) string {
	shown := &call{name: c.Name, input: inputOf(c.Name, c.Input)}
	line := l.style(dim, l.sign("● ")+cli.Harmless(c.Name, true)+" "+shown.input)
	for _, m := range following {
		switch {
		case m.Role != protocol.RoleTool:
			return line + l.style(dim, " (no result)")
		case m.ToolCallID == c.ID && m.IsError:
			return l.ended(shown, -1, true)[0]
		case m.ToolCallID == c.ID:
			return line
		}
	}
	return line + l.style(dim, " (no result)")
}
