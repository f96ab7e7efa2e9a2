package terminal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
)

// endPatience bounds what is done after the talk, at a server that may hang.
const endPatience = 10 * time.Second

// Options say who talks to whom, and where.
type Options struct {
	// Agent is talked to, or Resume, Fresh or Session say who is; without any the lobby asks.
	Agent, Session string
	Resume, Fresh  bool
	// Template is a file with the system prompt of a fresh agent, Model and Preset are its, or
	// narrow those of a saved one.
	Template, Model, Preset string
	// Cwd is the directory of agents that are created, absolute.
	Cwd string
	// Terminal is where a person types; nil where none does: then each line waits for the end of what the
	// one before has begun.
	Terminal *os.File
	// Verbose shows calls whole, and what each turn took.
	Verbose bool
	// Plain has lines read and written, and nothing drawn.
	Plain bool
	// Started says that the server was started for us: it is ended with the talk, unless others
	// use it.
	Started bool

	// Interrupts has the SIGINTs since before that. SIGTERM and SIGHUP end the context of the talk.
	Interrupts chan os.Signal

	// Server says which server that is, which has proved it by the first answer; "" where it was started
	// for us, and that was said.
	Server string

	// Program is how this program is called for the same server, as "nexus --home DIR".
	Program string
	// After says what to do once the server has ended where Program starts none; "" where it does.
	After string

	Version string
	Home    string
	Environ []string // KEY=VALUE, by which the commands find the server
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Run talks until the person leaves. The error says why there was nothing to talk to; what is wrong
// with single messages was shown.
func Run(ctx context.Context, c *client.Client, o Options) error {
	run := drawn
	if o.Plain {
		run = plainly
	}
	t, err := run(ctx, c, o)
	end(t)
	if err == nil && t.failed.Load() {
		err = errors.New("")
	}
	return err
}

// end ends what the talk has begun, and says what stays.
func end(t *talk) {
	for _, line := range undelivered(t) {
		fmt.Fprintln(t.o.Stderr, "nexus: "+cli.Harmless(line, false))
	}
	t.chat.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), endPatience)
	defer cancel()
	t.ctx = ctx
	for _, line := range t.finish() {
		fmt.Fprintln(t.o.Stderr, line)
	}
}

// drawn is the talk at a terminal.
func drawn(ctx context.Context, c *client.Client, o Options) (*talk, error) {
	var program *Program
	t := newTalk(context.WithoutCancel(ctx), c, o, func(msg any) { program.Send(msg) }) // what it has begun outlives the wish to leave
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	t.chat.goes(func() { t.chat.halts.Watch(t.chat.ctx) })
	t.chat.goes(func() {
		select {
		case <-o.Interrupts: // bubbletea heeds those that come later
			leave()
		case <-t.chat.ctx.Done():
		}
	})
	k := NewKeyboard(o.Terminal)
	if columns, _, err := term.GetSize(k.Fd()); err == nil {
		t.resize(columns) // bubbletea tells it while the talk begins
	}
	m := newModel(t, openHistory(o.Home), k)
	program = NewProgram(m, k, o.Stdout, o.Environ)
	t.chat.approvals()
	err := program.Show(ctx)
	if err == nil {
		m.keep()
	}
	return t, err
}

// plainly is the talk by lines.
func plainly(ctx context.Context, c *client.Client, o Options) (*talk, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	msgs := make(chan any)
	t := newTalk(context.WithoutCancel(ctx), c, o, func(msg any) {
		select {
		case msgs <- msg:
		case <-ctx.Done():
		}
	})
	l := &lineMode{t: t, out: &output{Writer: o.Stdout}, scripted: o.Terminal == nil, msgs: msgs, typed: typedLines{from: o.Stdin, done: make(chan struct{})}}
	l.lines = l.typed.read()
	t.chat.goes(func() { t.chat.halts.Watch(t.chat.ctx) })
	t.chat.approvals()
	l.loop(ctx)
	strandTyped(t)
	if !l.scripted {
		l.afterwards(ctx)
	}
	close(l.typed.done)
	stop()
	return t, l.out.err
}

// output is where lines are written until that fails: nobody would see what the talk does from then on.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (n int, err error) {
	if o.err != nil {
		return 0, o.err
	}
	if n, err = o.Writer.Write(b); errors.Is(err, syscall.EPIPE) {
		err = cli.ErrNoReader
	}
	o.err = err
	return n, err
}

// lineMode reads and writes lines.
type lineMode struct {
	t        *talk
	out      *output
	msgs     chan any
	typed    typedLines
	lines    <-chan string
	scripted bool // no person types
	working  int  // how much work is under way
	ending   bool // stdin has ended
}

// loop shows what happens until the person leaves, or stdin ends and nothing runs.
func (l *lineMode) loop(ctx context.Context) {
	l.do(l.t.start)
	source := l.lines
	for !l.t.over && l.out.err == nil {
		for lines, more, ok := onward(l.t); ok; lines, more, ok = onward(l.t) {
			l.show(lines, more)
		}
		sent := slices.ContainsFunc(l.t.queued, func(m message) bool { return m.agent != "" })
		busy := l.t.shown.turn != "" || sent || l.working > 0
		if l.ending && !busy {
			return
		}
		lines := source
		if l.scripted && busy && len(l.t.requests) == 0 || l.t.agent == "" && l.working > 0 {
			lines = nil // a script's come one after the other, and a person's when there is somebody to talk to
		}
		select {
		case <-ctx.Done():
			return
		case msg := <-l.msgs:
			if c, ok := msg.(came); ok {
				l.working--
				msg = c.msg
			}
			if why, ok := msg.(failed); ok && l.scripted && l.t.agent == "" { // a script takes what stands on stdout for answers
				fmt.Fprintln(l.t.o.Stderr, "nexus: "+strings.TrimPrefix(string(why), "! "))
				l.t.failed.Store(true)
				return
			}
			l.show(l.t.handle(msg))
		case line, ok := <-lines:
			if !ok {
				l.ending, source = true, nil
				continue
			}
			l.take(line)
		case <-l.t.o.Interrupts:
			more, ok := l.t.interrupt()
			if !ok {
				return
			}
			l.do(more)
		}
	}
}

// take takes a line: for an answer to the request that waits longest, if there is one. A person's that is none is not
// sent, as that would be no message; a script knows nothing of requests.
func (l *lineMode) take(line string) {
	isCommand := strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "//")
	if len(l.t.requests) > 0 && l.t.question == nil && !isCommand {
		if lines, more, ok := approve(l.t, line); ok {
			l.show(lines, more)
			l.ask()
			return
		}
		if !l.scripted {
			if strings.TrimSpace(line) != "" {
				l.show([]string{l.t.look().problem(cli.Harmless("no answer, and not sent: "+line, true))}, nil)
			}
			l.ask()
			return
		}
	}
	l.show(l.t.submit(line, false))
}

// ask shows the question that the last answer has led to.
func (l *lineMode) ask() {
	if q := l.t.question; q != nil {
		fmt.Fprintln(l.out, q.text)
	} else if len(l.t.requests) > 0 {
		fmt.Fprintln(l.out, strings.Join(append(l.t.requestLines(), l.t.choices()...), "\n"))
	}
}

func (l *lineMode) show(lines []string, more work) {
	if len(lines) > 0 {
		fmt.Fprintln(l.out, strings.Join(lines, "\n"))
	}
	l.do(more)
}

// came is what came of work.
type came struct{ msg any }

// do has work done; what comes of it is handled in its turn.
func (l *lineMode) do(w work) {
	if w == nil {
		return
	}
	l.working++
	l.t.chat.goes(func() { l.t.chat.tell(came{w()}) })
}

// Once sends one message, read from stdin, and prints the answer alone. The error says why there was
// nobody to send it to; it is empty, with the status of the send, where the error of that was printed.
func Once(ctx context.Context, c *client.Client, o Options) error {
	o.Plain = true
	t := newTalk(ctx, c, o, func(any) {})
	defer end(t)
	if ctx.Err() != nil || len(o.Interrupts) > 0 {
		return errors.New("")
	}
	return t.once()
}

func (t *talk) once() error {
	agent, err := t.o.Agent, error(nil)
	switch o := t.o; {
	case o.Resume, o.Session != "", agent != "" && narrows(o):
		p := api.LoadSessionParams{Last: &o.Resume}
		if name := cmp.Or(o.Session, agent); name != "" {
			p.SessionName = &name
		}
		if agent, err = t.chat.load(narrowed(t, p)); err != nil {
			err = explained(t, p, err)
		}
	case agent == "":
		agent, err = t.create(api.CreateAgentParams{Temporary: new(true)})
	}
	if err != nil {
		return err
	}
	o := t.o
	app := cli.New(cli.Options{Name: "nexus", Version: o.Version, Environ: o.Environ, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	if status := app.Run(t.ctx, []string{"send", "--", agent, "-"}); status != cli.ExitDone {
		return cli.Ended(status)
	}
	return nil
}
