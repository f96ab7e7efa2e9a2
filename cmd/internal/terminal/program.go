package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"nexus.internal/cmd/internal/cli"
)

// Program draws a model on a terminal. bubbletea lets go of what reads the keyboard without a wait wherever it
// calls an end a kill: after a panic, an interrupt, the end of a context. So it is told of none of these: each of
// them quits, and what was read by then is read to its end.
type Program struct {
	program  *tea.Program
	keyboard *Keyboard
	guard    *guard
	first    *firstFrame
}

// Begun says that the first frame was drawn. bubbletea takes all of the screen for a frame before, so what is
// printed above it is written over what was printed before.
type Begun struct{}

// NewProgram draws m on out, from Show on.
func NewProgram(m tea.Model, k *Keyboard, out io.Writer, environ []string) *Program {
	g := &guard{model: m, keyboard: k, faulted: make(chan struct{})}
	quits := func(_ tea.Model, msg tea.Msg) tea.Msg {
		if _, ok := msg.(tea.InterruptMsg); ok {
			msg = tea.QuitMsg{}
		}
		if _, ok := msg.(tea.QuitMsg); ok {
			k.answers.wait()
		}
		return msg
	}
	if cli.Colourless(environ) {
		environ = append(environ[:len(environ):len(environ)], "NO_COLOR=1") // of other values bubbletea takes few for set
	}
	first := &firstFrame{Writer: out, answers: &k.answers, drawn: make(chan struct{})}
	return &Program{tea.NewProgram(g, tea.WithFilter(quits), tea.WithInput(k), tea.WithOutput(first.output()), tea.WithEnvironment(environ)), k, g, first}
}

// firstFrame is written to until the first frame, and on.
type firstFrame struct {
	io.Writer
	answers *answers
	drawn   chan struct{} // closed after the first frame
	over    bool
}

// output is what bubbletea writes to, from one goroutine at a time: a terminal, if it is one.
func (f *firstFrame) output() io.Writer {
	if file, ok := f.Writer.(term.File); ok {
		return terminalFile{file, f}
	}
	return f
}

// Write implements [io.Writer]. The first frame asks for pasted text to be marked, and nothing else does.
func (f *firstFrame) Write(b []byte) (int, error) {
	f.answers.wrote(b) // before, as the answer may be quick
	n, err := f.Writer.Write(b)
	if !f.over && bytes.Contains(b, []byte(ansi.SetModeBracketedPaste)) {
		f.over = true
		close(f.drawn)
	}
	return n, err
}

type terminalFile struct {
	term.File
	first *firstFrame
}

func (t terminalFile) Write(b []byte) (int, error) { return t.first.Write(b) }

// Send has the model take msg. It waits until Show runs, and does nothing once that has returned.
func (p *Program) Send(msg any) { p.program.Send(msg) }

// Show draws until the model ends it, or ctx or a signal does, SIGHUP, too. The terminal is then as it was before,
// and nobody reads it. After a stop that nobody could see coming the program goes on. A panic of the model or of one of
// its commands ends it with an error.
func (p *Program) Show(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGCONT)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		drawn := p.first.drawn
		for {
			select {
			case <-drawn:
				drawn = nil
				p.program.Send(Begun{})
				continue
			case s := <-signals:
				if s == syscall.SIGCONT {
					if again := p.keyboard.resume(); again != nil {
						p.program.Send(again())
					}
					continue
				}
			case <-p.guard.faulted:
			case <-ctx.Done():
			case <-done:
				return
			}
			p.program.Quit()
			return
		}
	})
	_, err := p.program.Run()
	signal.Stop(signals)
	close(done)
	watching.Wait()
	return errors.Join(p.guard.fault, err)
}

// guard is a model whose panics end the program. After one the model is left alone.
type guard struct {
	model    tea.Model
	keyboard *Keyboard
	once     sync.Once
	fault    error         // set before faulted is closed, or never
	faulted  chan struct{} // closed after a panic
}

// caught is deferred where the model runs.
func (g *guard) caught() {
	if what := recover(); what != nil {
		g.panicked(broken{what, debug.Stack()})
	}
}

func (g *guard) panicked(b broken) {
	g.once.Do(func() {
		g.fault = fmt.Errorf("%w: %s", tea.ErrProgramPanic, cli.Harmless(b.String(), false))
		close(g.faulted)
	})
}

func (g *guard) hasFaulted() bool {
	select {
	case <-g.faulted:
		return true
	default:
		return false
	}
}

// Init implements [tea.Model].
func (g *guard) Init() (cmd tea.Cmd) {
	defer g.caught()
	return g.guarded(g.model.Init())
}

// Update implements [tea.Model].
func (g *guard) Update(msg tea.Msg) (m tea.Model, cmd tea.Cmd) {
	defer g.caught()
	m = g
	switch msg := msg.(type) {
	case broken:
		g.panicked(msg)
	case tea.PasteStartMsg:
		g.keyboard.pasting.Store(true)
	case tea.PasteEndMsg:
		g.keyboard.pasting.Store(false)
	}
	if g.hasFaulted() {
		return m, nil
	}
	g.model, cmd = g.model.Update(msg)
	return m, g.guarded(cmd)
}

// View implements [tea.Model].
func (g *guard) View() (v tea.View) {
	defer g.caught()
	if g.hasFaulted() {
		return tea.NewView("")
	}
	return g.model.View()
}

// guarded is cmd, and all that it leads to, with panics caught.
func (g *guard) guarded(cmd tea.Cmd) tea.Cmd {
	if cmd == nil {
		return nil
	}
	return func() (msg tea.Msg) {
		defer g.caught()
		msg = cmd()
		if batch, ok := msg.(tea.BatchMsg); ok {
			for i := range batch {
				batch[i] = g.guarded(batch[i])
			}
		}
		return msg
	}
}
