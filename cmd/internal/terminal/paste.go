package terminal

import (
	"fmt"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/cmd/internal/cli"
)

const (
	// maxInputLines is how many lines the input can have: what is behind them, it drops without a word.
	maxInputLines = 10_000
	// maxInputChars bounds what is pasted into it: the input wraps all of a paragraph for each key, and keeps what it wrapped.
	maxInputChars = 500_000
	tabWidth      = 4 // the input has these spaces for it
)

// paste has the input take a text. One that it has no room for is refused whole, and that is said: the end of a message would be missing.
func (m *model) paste(text string) tea.Cmd {
	lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
	chars := utf8.RuneCountInString(text) + (tabWidth-1)*strings.Count(text, "\t")
	if lines-1+m.input.LineCount() > maxInputLines || chars+m.input.Length() > maxInputChars {
		return m.show([]string{m.t.look().problem(fmt.Sprintf("the pasted text is too long, and nothing of it was taken: "+
			"it has %s in %s, and the input has room for %d in %d; put it into a file, and name that in the message as @PATH",
			cli.Counted(uint64(chars), "character"), cli.Counted(uint64(lines), "line"), maxInputChars, maxInputLines))}, nil)
	}
	m.input, _ = m.input.Update(tea.PasteMsg{Content: text})
	return nil
}
