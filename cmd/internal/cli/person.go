package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/charmbracelet/x/term"
	"github.com/muesli/cancelreader"
	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// screen is a screen on out, which may be a terminal that shows styles (no-color.org).
func (t *target) screen(out io.Writer) *screen {
	s := &screen{out: out}
	if IsTerminal(out) {
		kind := t.getenv("TERM")
		s.terminal, _ = out.(*os.File)
		s.styles = kind != "" && kind != "dumb" && !Colourless(t.environ)
	}
	return s
}

// person is somebody at the terminal that we were started from.
type person struct {
	a   *App
	tty *os.File // for reading
}

// person is who attends to what we do; nil if there is nobody, who sees what we show and whose
// terminal is ours to read. The caller must close it.
func (a *App) person() *person {
	if a.Structured() || !IsTerminal(a.Stdout) || !IsTerminal(a.Stderr) {
		return nil
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return nil
	}
	return &person{a, tty}
}

func (p *person) close() {
	if p != nil {
		p.tty.Close()
	}
}

// width is how many characters of foreign text are shown in a line beside some of ours.
func (p *person) width() int {
	columns, _, err := term.GetSize(p.tty.Fd())
	if err != nil || columns == 0 {
		columns = 80
	}
	return max(20, columns-20)
}

// maxLine bounds what a person answers, in bytes.
const maxLine = 4 << 10

// question is one that waits for a line of the person. A nil one waits for nothing.
type question struct {
	text    string
	from    cancelreader.CancelReader
	lines   chan string
	reading sync.WaitGroup
}

// ask asks for a line. What was typed before is no answer and is dropped. It is nil where the
// terminal is not to be read, as by a program in the background. The caller must drop it.
func (p *person) ask(text string) *question {
	fd := int(p.tty.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() || dropTyped(fd) != nil {
		return nil
	}
	from, err := cancelreader.NewReader(p.tty)
	if err != nil {
		return nil
	}
	fmt.Fprint(p.a.errs, text)
	q := &question{text: text, from: from, lines: make(chan string, 1)}
	q.reading.Go(func() {
		defer close(q.lines)
		var line []byte
		buffer := make([]byte, maxLine)
		for len(line) < maxLine {
			n, err := from.Read(buffer)
			if err != nil || n == 0 { // Ctrl-D
				return
			}
			line = append(line, buffer[:n]...)
			if text, _, whole := strings.Cut(string(line), "\n"); whole {
				q.lines <- text
				return
			}
		}
	})
	return q
}

// line gives the line that was typed; it is closed without one if there is none to come.
func (q *question) line() <-chan string {
	if q == nil {
		return nil
	}
	return q.lines
}

// drop ends the question, answered or not.
func (q *question) drop() {
	q.from.Cancel()
	q.reading.Wait()
	q.from.Close()
}
