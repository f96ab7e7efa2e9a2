package terminal

import (
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/cmd/internal/cli"
)

const (
	// restPause is for how long nothing is typed before a talk that is over ends, and restPatience bounds that: what was
	// pasted together with the end is on its way still.
	restPause    = 100 * time.Millisecond
	restPatience = 2 * time.Second
	// maxRest bounds what is named of it, in bytes.
	maxRest = 64 << 10
)

// rest is what was typed behind the end of a talk. It is sent to nobody, and named.
type rest struct {
	text  strings.Builder
	more  uint64 // how many characters there was no room for
	waits bool   // the end waits for the rest
}

// take takes the next piece. A terminal that pastes has CR at the ends of lines.
func (r *rest) take(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if r.more > 0 || r.text.Len()+len(text) > maxRest {
		r.more += uint64(utf8.RuneCountInString(text))
		return
	}
	r.text.WriteString(text)
}

// taken is all that was typed.
func (r *rest) taken() string {
	text := r.text.String()
	if r.more > 0 {
		text += "… (" + cli.Counted(r.more, "more character") + ")"
	}
	return text
}

// key takes a key; one that is no text counts for nothing.
func (r *rest) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter", "alt+enter", "shift+enter", "ctrl+j":
		r.take("\n")
	default:
		r.take(k.Text)
	}
}

// quiet asks whether something was typed since, and ends the talk if not.
type quiet struct {
	typed int
	until time.Time
}

// leave ends the program once nothing is typed any more.
func (m *model) leave() tea.Cmd {
	if m.rest.waits {
		return nil
	}
	m.rest.waits = true
	return m.awaitQuiet(time.Now().Add(restPatience))
}

func (m *model) awaitQuiet(until time.Time) tea.Cmd {
	this, k := quiet{m.typed, until}, m.keyboard
	return func() tea.Msg {
		k.answers.wait() // meanwhile keys are taken
		pause := time.NewTimer(restPause)
		<-pause.C
		return this
	}
}

// quietened ends the program, or waits once more.
func (m *model) quietened(q quiet) tea.Cmd {
	if (q.typed == m.typed && !m.keyboard.pasting.Load()) || time.Now().After(q.until) {
		return tea.Quit
	}
	return m.awaitQuiet(q.until)
}

// keep takes what was typed and sent to nobody, at the end of the talk, for a message that was not sent.
func (m *model) keep() {
	m.release()
	strandTyped(m.t)
	var early rest
	early.take(m.input.Value())
	for _, k := range m.early {
		early.key(k)
	}
	unsent(m.t, early.taken()+m.rest.taken())
}

// unsent takes text for a message that was not sent.
func unsent(t *talk, text string) {
	if text = strings.Trim(text, "\r\n"); strings.TrimSpace(text) != "" {
		t.queued = append(t.queued, message{text: text})
	}
}
