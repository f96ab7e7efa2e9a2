package terminal

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// By Enter the same lines answer as in a talk by lines, and an answer that the request does not offer is no message: it is said what is one.
func TestLinesThatAnswer(t *testing.T) {
	for line, want := range map[string]struct {
		waits, sent int
		said        string
	}{
		"yes": {}, "Y": {}, "no": {}, "n not that one": {}, "no it is wrong": {},
		"s":           {waits: 1, said: "s is no answer here: y once, n no, r no with a reason"},
		"session":     {waits: 1, said: "session is no answer here: y once"},
		"yes please":  {waits: 1, sent: 1},
		"stop it now": {waits: 1, sent: 1},
	} {
		m := drawnTalk(t)
		m.t.queued = []message{{agent: "a", id: "0", known: make(chan error)}} // so that nothing is sent from here
		m.asks("a", "1")
		m.Update(paused(m.pauses))
		m.press(line)
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
		said := ansi.Strip(strings.Join(m.lines, "\n"))
		if len(m.t.requests) != want.waits || len(m.t.queued) != 1+want.sent || !strings.Contains(said, want.said) || m.input.Value() != "" {
			t.Errorf("%q: %d requests wait, %d messages, it says %q, and the line is %q", line, len(m.t.requests), len(m.t.queued), said, m.input.Value())
		}
	}
}
