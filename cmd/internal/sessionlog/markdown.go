package sessionlog

import (
	"fmt"
	"strings"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/transcript"
)

// headOf is how session.md begins.
func headOf(agent string, h transcript.Header) string {
	return fmt.Sprintf("# %s\n\nSession `%s`, begun %s\n", agent, h.SessionID, timeOf(h.CreatedAt))
}

// appendMarkdown appends an entry as it stands in session.md: a line of the log's own, and quoted what others
// said. Nothing in it acts on a terminal, and no name or text can look like another entry.
func appendMarkdown(text []byte, e Entry) []byte {
	said := strings.TrimRight(cli.Harmless(e.Text, false), "\n")
	at := strings.TrimSuffix(strings.Replace(e.At, "T", " ", 1), "Z")
	kind, name := strings.ReplaceAll(e.Kind, "_", " "), withoutTagsInLine(cli.Harmless(e.Name, true))
	switch e.Kind {
	case "user", "assistant", "system":
		if name != "" {
			kind += " (" + name + ")"
		}
		return fmt.Appendf(text, "\n## %s · %s\n\n%s\n", kind, at, quoted(withoutTags(said)))
	case "thinking", "partial", "compaction":
		return fmt.Appendf(text, "\n*%s* · %s\n\n%s\n", kind, at, quoted(withoutTags(said)))
	case "tool_call", "tool_result", "tool_error":
		fence := fenceOf(said)
		return fmt.Appendf(text, "\n**%s %s** · %s\n\n%s\n", kind, name, at, quoted(fence+"\n"+said+"\n"+fence))
	default:
		if name != "" {
			name = " " + name
		}
		return fmt.Appendf(text, "\n*%s%s* · %s · %s\n", kind, name, at, withoutTagsInLine(strings.ReplaceAll(said, "\n", " ")))
	}
}

// fenceOf is a fence that no line of text can end.
func fenceOf(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}
