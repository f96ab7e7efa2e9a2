package terminal

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"
)

// typedLines are read from stdin.
type typedLines struct {
	from io.Reader
	done chan struct{} // closed when nobody takes lines any more

	mu    sync.Mutex // guards what follows
	begun []byte     // a line whose end was not read
	reads int        // how often something was read
}

// read gives the lines until stdin ends, one without an end then, too. At a terminal that may end (Ctrl-D) more than once: then
// it can be called again.
func (r *typedLines) read() <-chan string {
	lines := make(chan string)
	go func() { // ends with stdin, or with the process
		defer close(lines)
		buffer := make([]byte, 4<<10)
		for {
			n, err := r.from.Read(buffer)
			for _, line := range r.add(buffer[:n], err != nil) {
				select {
				case lines <- strings.TrimRight(line, "\r\n"):
				case <-r.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// add takes what was read, and returns the lines that it ends.
func (r *typedLines) add(b []byte, last bool) (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	r.begun = append(r.begun, b...)
	for {
		end := bytes.IndexByte(r.begun, '\n') + 1
		if end == 0 {
			break
		}
		lines = append(lines, string(r.begun[:end]))
		r.begun = r.begun[end:]
	}
	if last && len(r.begun) > 0 {
		lines = append(lines, string(r.begun))
		r.begun = nil
	}
	return lines
}

// state is how often something was read, and the line whose end was not.
func (r *typedLines) state() (reads int, begun string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads, string(r.begun)
}

// afterwards takes what a person has typed that comes behind the end of the talk, however that came: what is left at the terminal,
// a shell would carry out.
func (l *lineMode) afterwards(ctx context.Context) {
	defer byKeys(l.t.o.Terminal)()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restPatience)
	defer cancel()
	seen, _ := l.typed.state()
	again := false
	var r rest
	for pause := time.NewTimer(restPause); ; pause.Reset(restPause) {
		select {
		case line, ok := <-l.lines:
			if ok {
				r.take(line + "\n")
				continue
			}
			if !again {
				again = true
				l.lines = l.typed.read() // behind Ctrl-D
				continue
			}
		case <-pause.C:
			before := seen
			if seen, _ = l.typed.state(); seen != before {
				continue
			}
		case <-ctx.Done():
		}
		_, begun := l.typed.state()
		r.take(strings.Trim(begun, "\x00\x04")) // Ctrl-D
		unsent(l.t, r.taken())
		return
	}
}

// byKeys has a terminal give what was typed as it comes, where it gives whole lines otherwise: what was typed of one without its end, too. The
// caller must call restore. Nothing is done in the background, where a terminal that is set stops the program.
func byKeys(terminal *os.File) (restore func()) {
	fd := terminal.Fd()
	before, err := term.GetState(fd)
	if group, failed := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err != nil || failed == nil && group != unix.Getpgrp() {
		return func() {}
	}
	keys := *before
	keys.Lflag &^= unix.ICANON
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 1, 0
	if term.SetState(fd, &keys) != nil {
		return func() {}
	}
	return func() { _ = term.SetState(fd, before) }
}
