package foreign

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nexus.internal/child/sandbox"
)

const (
	// MaxLine bounds one line of a program, in bytes, newline excluded: an image in base64 fits. A
	// longer one is skipped without being kept.
	MaxLine = 32 << 20
	// closeGrace is how long a program has to end once its stdin is closed.
	closeGrace = 500 * time.Millisecond
)

// writeTimeout is how long a program may leave its stdin unread. Only tests change it.
var writeTimeout = 10 * time.Second

// Start starts a program. It ends when ctx does.
type Start interface {
	Start(ctx context.Context, s sandbox.Spec) (*sandbox.Process, error)
}

// Launcher starts the program of an agent, again and again if need be.
type Launcher struct {
	start   Start
	command []string
	name    string
	dir     string
	env     []string
	stderr  io.Writer
}

// Has reports whether the command has that argument.
func (l Launcher) Has(argument string) bool { return slices.Contains(l.command[1:], argument) }

// Launch starts the program with further arguments. Its Close must be called.
func (l Launcher) Launch(args ...string) (*Program, error) {
	said := &tail{}
	// Its life is not that of the call that starts it: Close ends it.
	process, err := l.start.Start(context.Background(), sandbox.Spec{
		Argv: slices.Concat(l.command, args), Dir: l.dir, Env: l.env, Stdin: true, Stderr: io.MultiWriter(said, l.stderr),
	})
	if err != nil {
		return nil, err
	}
	p := &Program{
		process: process, name: l.name, said: said, reader: bufio.NewReaderSize(process.Stdout(), 64<<10), done: make(chan struct{}),
	}
	go p.wait()
	return p, nil
}

// Program is one live program: its lines. Next is for one goroutine; all else is safe for
// concurrent use.
type Program struct {
	process *sandbox.Process
	name    string
	reader  *bufio.Reader
	done    chan struct{} // closed once nothing of it is left; exit is valid then
	exit    sandbox.Exit
	said    *tail // on stderr; for those that wait for done

	closing sync.Once
	given   atomic.Pointer[string] // why it was given up

	mu     sync.Mutex // guards writes, and all below
	broken error      // a write was lost: nothing may follow
}

func (p *Program) wait() {
	defer close(p.done)
	p.exit = p.process.Wait()
}

// TooLongError says that a line was longer than MaxLine and is skipped. The next one is whole.
type TooLongError struct{}

func (*TooLongError) Error() string { return fmt.Sprintf("a line of more than %d bytes", MaxLine) }

// Next is the next line, without its newline; it is valid until the next call. io.EOF means that
// there will be no more: a last line without its end is lost. A *TooLongError costs that line alone.
func (p *Program) Next() ([]byte, error) {
	var whole []byte
	for long := false; ; {
		part, err := p.reader.ReadSlice('\n')
		switch {
		case err == nil && long:
			return nil, &TooLongError{}
		case err == nil && whole == nil:
			return trim(part), nil
		case err == nil:
			return trim(append(whole, part...)), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, io.EOF // of a pipe of ours: whatever it says, it is over
		}
		if long = long || len(whole)+len(part) > MaxLine; long {
			whole = nil
			continue
		}
		whole = append(whole, part...)
	}
}

func trim(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// Read reads what the program writes, as it is: in the place of Next, not beside it.
func (p *Program) Read(b []byte) (int, error) { return p.reader.Read(b) }

// Write writes one line, without its newline. A program that does not read within 10 s is given up:
// that is an error, as one that is gone is, and so is all that follows.
func (p *Program) Write(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return p.broken
	}
	stdin := p.process.Stdin()
	_ = stdin.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only if it was closed
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		p.broken = fmt.Errorf("write to the program: %w", err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.GiveUp(fmt.Sprintf("killed, as it did not read its input for %v", writeTimeout))
		}
	}
	return p.broken
}

// WriteAll writes text as it is and closes the program's stdin: in the place of Write. It takes as
// long as the program takes to read, or until it ends.
func (p *Program) WriteAll(text string) error {
	defer p.CloseInput()
	_, err := io.WriteString(p.process.Stdin(), text)
	return err
}

// CloseInput tells the program that no more is written.
func (p *Program) CloseInput() { p.process.Stdin().Close() }

// Done is closed once the program has ended and nothing that it started is left.
func (p *Program) Done() <-chan struct{} { return p.done }

// End waits for that and says how it ended, as an *EndError.
func (p *Program) End() error {
	<-p.done
	if why := p.given.Load(); why != nil {
		return &EndError{Name: p.name, How: *why}
	}
	how := fmt.Sprintf("exit status %d", p.exit.Code)
	if p.exit.Signal != 0 {
		how = fmt.Sprintf("killed by signal %d (%v)", int(p.exit.Signal), p.exit.Signal)
	}
	return &EndError{Name: p.name, How: how}
}

// Succeeded reports whether it ended with exit status 0. Done is closed.
func (p *Program) Succeeded() bool { return p.exit.Signal == 0 && p.exit.Code == 0 }

// Complaint is the end of what it wrote to stderr, "" for nothing. Done is closed.
func (p *Program) Complaint() string { return p.said.text() }

// GiveUp kills a program that cannot be gone on with. End says why, unless it had ended before.
func (p *Program) GiveUp(why string) {
	select {
	case <-p.done:
	default:
		p.given.CompareAndSwap(nil, &why)
		p.Kill()
	}
}

// Unwritable is called by whoever could not write: a program that takes no more input and does not
// end within half a second cannot be gone on with.
func (p *Program) Unwritable() { p.expectEnd("killed, as it had closed its input") }

// Drained is called by whoever has read the program's last line: one that does not end within half a
// second of that cannot be gone on with. It returns how the program ended, as End does.
func (p *Program) Drained() error {
	p.expectEnd("killed, as it had closed its output")
	return p.End()
}

func (p *Program) expectEnd(why string) {
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.GiveUp(why)
	}
}

// Kill ends the program and all that it started, and does not wait for that.
func (p *Program) Kill() { p.process.Kill() }

// Close closes the program's stdin, gives it half a second to end, kills what is left of it, and
// waits for that. What it writes meanwhile is read by somebody else, or held up.
func (p *Program) Close() {
	p.closing.Do(func() {
		p.CloseInput()
		timer := time.NewTimer(closeGrace)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
		}
		p.process.Close()
		<-p.done
	})
}
