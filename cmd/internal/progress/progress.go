// Package progress shows how far long work has come, on the last line of a terminal.
//
//	bar := progress.Begin(os.Stderr, os.Getenv("TERM"), len(files), "files")
//	defer bar.End()
//	out := bar.Beside(os.Stdout) // what is printed meanwhile stands above the bar
//	bar.At(1, files[1])
//
// Where there is no terminal that can erase a line, nothing is shown. A Bar is safe for concurrent
// use, and so is a nil one, which shows nothing.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"
)

// erase goes to the begin of the line and empties it.
const erase = "\r\x1b[K"

// parts is how many parts a bar has, and maxWidth bounds its line, in columns.
const (
	parts    = 20
	maxWidth = 100
)

// Bar is the line of one work.
type Bar struct {
	out     *os.File
	total   int
	noun    string
	began   time.Time
	stop    chan struct{}
	ticking sync.WaitGroup

	mu     sync.Mutex // guards what follows, and the order of writes
	done   int
	what   string
	inLine bool // something else stands in the line
}

// Begin shows work of so many parts, which noun names, on out, a terminal of the kind of $TERM; nil
// if it is none. The caller must end it.
func Begin(out io.Writer, kind string, total int, noun string) *Bar {
	file, ok := out.(*os.File)
	if !ok || kind == "" || kind == "dumb" || !term.IsTerminal(file.Fd()) {
		return nil
	}
	b := &Bar{out: file, total: total, noun: noun, began: time.Now(), stop: make(chan struct{})}
	b.draw()
	b.ticking.Go(func() {
		seconds := time.NewTicker(time.Second)
		defer seconds.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-seconds.C:
				b.mu.Lock()
				b.draw()
				b.mu.Unlock()
			}
		}
	})
	return b
}

// At says that so many parts are done, and what is at work: text in which a terminal acts on nothing.
func (b *Bar) At(done int, what string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.what = done, what
	b.draw()
}

// End removes the line. It is called once.
func (b *Bar) End() {
	if b == nil {
		return
	}
	close(b.stop)
	b.ticking.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.inLine {
		_, _ = io.WriteString(b.out, erase) // who looks is not helped by an error here
	}
}

// draw shows the bar, unless something else stands in its line. The lock is held, if somebody else
// can have it.
func (b *Bar) draw() {
	if b.inLine {
		return
	}
	columns, _, err := term.GetSize(b.out.Fd())
	if err != nil || columns <= 0 {
		columns = 80
	}
	text := line(b.done, b.total, b.noun, b.what, time.Since(b.began), min(columns-1, maxWidth))
	_, _ = io.WriteString(b.out, erase+text)
}

// line is the bar in so many columns.
func line(done, total int, noun, what string, took time.Duration, columns int) string {
	full := parts
	if total > 0 {
		full = min(parts, done*parts/total)
	}
	text := fmt.Sprintf("[%s%s] %d of %d %s, %v", strings.Repeat("#", full), strings.Repeat("-", parts-full), done, total, noun, took.Truncate(time.Second))
	if what != "" {
		text += ": " + what
	}
	if runes := []rune(text); len(runes) > columns {
		return string(runes[:max(0, columns)])
	}
	return text
}

// Beside is out, for what is printed while the bar is shown. It may be another stream to the same
// terminal.
func (b *Bar) Beside(out io.Writer) io.Writer {
	if b == nil {
		return out
	}
	return &beside{b, out}
}

type beside struct {
	bar *Bar
	out io.Writer
}

func (w *beside) Write(p []byte) (int, error) {
	b := w.bar
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.inLine {
		_, _ = io.WriteString(b.out, erase)
	}
	n, err := w.out.Write(p)
	if len(p) > 0 {
		b.inLine = p[len(p)-1] != '\n'
	}
	b.draw()
	return n, err
}
