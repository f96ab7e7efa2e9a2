package terminal

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// burst is text whose keys come faster than anybody types, such as one that a terminal pastes without marks. The
// input wraps all of a paragraph for each text that it takes, and each is drawn, so that these keys are taken
// together: those that come within a pause after a key.
type burst struct {
	gathering bool     // a pause has begun
	more      bool     // keys came in it
	text      string   // those that the input does not have yet
	drawn     tea.View // what was drawn before
}

// gathered says that the pause is over.
type gathered struct{}

const (
	// burstPause is how long text that comes after a key may wait: nobody sees that.
	burstPause = 10 * time.Millisecond
	// burstCost is by how much that is longer for each character of the input, as it takes about that long.
	burstCost = 2 * time.Microsecond
)

// hold takes a key of text that came in such a pause; false for any other key.
func (m *model) hold(k tea.KeyPressMsg) bool {
	switch {
	case !m.burst.gathering, k.Text == "", k.Mod&^tea.ModShift != 0:
		return false
	case m.search != nil, m.waits(k.String()):
		return false // it may be no text
	}
	m.burst.text += k.Text
	m.burst.more, m.leaving, m.choices = true, false, nil
	return true
}

// release has the input take what was held.
func (m *model) release() tea.Cmd {
	text := m.burst.text
	if text == "" {
		return nil
	}
	m.burst.text = ""
	return tea.Batch(m.paste(text), m.choosing())
}

// gather begins a pause, if there is none, after a key of text.
func (m *model) gather() tea.Cmd {
	if m.burst.gathering {
		return nil
	}
	m.burst.gathering = true
	return tea.Tick(burstPause+time.Duration(m.input.Length())*burstCost, func(time.Time) tea.Msg { return gathered{} })
}

// gathered ends a pause; another one follows if keys came in it.
func (m *model) gathered() tea.Cmd {
	more := m.burst.more
	m.burst.gathering, m.burst.more = false, false
	if more {
		return m.gather()
	}
	return nil
}
