package terminal

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"

	"nexus.internal/cmd/internal/cli"
)

// Keyboard is a terminal that is read. What was typed before the terminal was ours came through its
// line editing, which makes a line feed of Enter: it is made Enter again.
type Keyboard struct {
	*os.File
	ahead     atomic.Bool // nothing was read since the terminal became ours
	suspended atomic.Bool // the terminal was given back
	pasting   atomic.Bool // the begin of a marked text was read, and not its end
	answers   answers
}

// NewKeyboard reads a terminal.
func NewKeyboard(terminal *os.File) *Keyboard {
	k := &Keyboard{File: terminal, answers: answers{came: make(chan struct{})}}
	k.ahead.Store(true)
	return k
}

// Suspend is a [tea.Cmd] that gives the terminal back, and stops until we go on.
func (k *Keyboard) Suspend() tea.Msg {
	k.answers.wait()
	k.ahead.Store(true)
	k.suspended.Store(true)
	return tea.Suspend()
}

// resume takes the terminal again after a stop that nobody could see coming: whoever stopped us has
// set it as they like it.
func (k *Keyboard) resume() tea.Cmd {
	if k.suspended.CompareAndSwap(true, false) {
		return nil // bubbletea takes it
	}
	k.ahead.Store(true)
	return tea.Exec(nothing{}, func(err error) tea.Msg {
		if err != nil {
			return tea.QuitMsg{}
		}
		return nil
	})
}

// nothing is a command that has the terminal for a moment, so that bubbletea takes it anew. A shorter
// moment may draw nothing ever after: the ticker of the drawing that ends is stopped by a goroutine
// that bubbletea 2.1.1 does not wait for, and it is the ticker of the drawing that begins.
type nothing struct{}

func (nothing) Run() error {
	<-time.After(50 * time.Millisecond)
	return nil
}
func (nothing) SetStdin(io.Reader)  {}
func (nothing) SetStdout(io.Writer) {}
func (nothing) SetStderr(io.Writer) {}

// ctrlC is Ctrl-C as it is read. A terminal sends it alone, and pasted text together.
const ctrlC = 3

func (k *Keyboard) Read(p []byte) (int, error) {
	state, err := term.GetState(k.Fd())
	edited := err == nil && state.Iflag&unix.ICRNL != 0 // after a stop, until it is ours again
	n, err := k.File.Read(p)
	k.answers.read(p[:n])
	if k.pasting.Load() && n == 1 && p[0] == ctrlC && len(p) >= len(ansi.BracketedPasteEnd) {
		return copy(p, ansi.BracketedPasteEnd), err // a person waits for an end that does not come: no key would count ever after
	}
	if k.ahead.CompareAndSwap(true, false) || edited {
		for i, c := range p[:n] {
			if c == '\x1b' {
				break // what the terminal answers, or pastes
			}
			if c == '\n' {
				p[i] = '\r'
			}
		}
	}
	return n, err
}

// maxEarly bounds the keys that wait for somebody to talk to. What is typed beyond is not taken, and that is said.
const maxEarly = 10_000

// waits reports whether a key waits: a message that was typed before there is somebody to talk to is
// for whoever comes.
func (m *model) waits(key string) bool {
	nobody := m.t.agent == "" && m.t.question == nil && m.working > 0
	return nobody && key != "ctrl+c" && (key == "enter" || len(m.early) > 0)
}

// keys takes a key, after those that wait.
func (m *model) keys(k tea.KeyPressMsg) tea.Cmd {
	if m.waits(k.String()) {
		if len(m.early) < maxEarly {
			m.early = append(m.early, k)
		} else {
			m.unheard++
		}
		return nil
	}
	return m.key(k)
}

// retype takes the keys that have waited.
func (m *model) retype() (do tea.Cmd) {
	early, unheard := m.early, m.unheard
	m.early, m.unheard = nil, 0
	if unheard > 0 {
		do = m.show([]string{m.t.look().problem("there was nobody to talk to yet: of what was typed, the last " + cli.Counted(unheard, "key") + " were not taken")}, nil)
	}
	for _, k := range early {
		if m.t.over {
			m.rest.key(k)
			continue
		}
		if m.hold(k) {
			continue
		}
		do = tea.Batch(do, m.release(), m.keys(k))
	}
	return tea.Batch(do, m.release())
}
