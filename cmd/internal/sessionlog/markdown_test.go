package sessionlog

import (
	"testing"

	"nexus.internal/fixtures"
)

// Nothing that is logged acts on the terminal that session.md is read at.
func TestNothingInMarkdownActsOnTheTerminal(t *testing.T) {
	for name, bad := range fixtures.Hostile() {
		for _, kind := range []string{"user", "thinking", "tool_call", "other"} {
			text := string(appendMarkdown(nil, Entry{At: "2026-01-02T03:04:05Z", Kind: kind, Name: bad, Text: bad}))
			if acts := fixtures.ActsOn(text); acts != "" {
				t.Errorf("%s, %s: a terminal acts on %q of %.500q", kind, name, acts, text)
			}
		}
	}
}
