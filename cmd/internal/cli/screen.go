package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"unicode/utf16"
	"unicode/utf8"

	"nexus.internal/protocol/textcut"
)

// screen is where everything is printed that may have been written by a model, a tool
// or a server: nothing in it acts on a terminal. Characters that do are shown as JSON
// escapes them, so that JSON stays what it is, and bytes that are no UTF-8 as U+FFFD.
// It is safe for concurrent use.
type screen struct {
	out      io.Writer
	terminal *os.File // that out is; nil for none
	styles   bool     // the terminal shows them
	wide     int      // columns, where out is no terminal; 0 for any number

	mu   sync.Mutex // guards what follows and the order of writes
	rest []byte     // the beginning of a character whose end is not written yet
	lost error      // the first error of out: what printed may not have looked at it
}

// Write implements [io.Writer]. A character may be written in parts.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if len(s.rest) > 0 {
		text = append(s.rest, p...)
	}
	whole := len(text) - textcut.Partial(text)
	s.rest = append([]byte(nil), text[whole:]...)
	if err := s.print(text[:whole]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// print writes whole characters. The lock is held.
func (s *screen) print(text []byte) error {
	_, err := s.out.Write(harmless(text, false))
	if errors.Is(err, syscall.EPIPE) {
		err = ErrNoReader
	}
	s.lost = cmp.Or(s.lost, err)
	return err
}

// through has everything go through what wrap makes of out, until restore is called.
func (s *screen) through(wrap func(io.Writer) io.Writer) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out = wrap(out)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = out
	}
}

// Styles of a line, as of ECMA-48.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

// styled writes a line, harmless but for its style.
func (s *screen) styled(style, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text = line(text); s.styles {
		text = style + text + plain
	}
	_, err := io.WriteString(s.out, text+"\n")
	s.lost = cmp.Or(s.lost, err)
}

// flush writes what stands for a character that was never finished. The error is the
// first of all writes.
func (s *screen) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 {
		_ = s.print(s.rest) // it keeps the error
		s.rest = nil
	}
	return s.lost
}

// acts reports whether a terminal acts on a character: the controls of C0 but newline
// and tab, DEL, those of C1, and those that change the direction of text. So do those of
// which nothing is seen: spaces without width, breaks of lines that are no newlines, and tags.
// The joiners within words and pictures (U+200C, U+200D) are none.
func acts(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', 0x7f <= r && r <= 0x9f:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069:
		return true
	case r == 0x200b, r == 0x2028, r == 0x2029, 0x2060 <= r && r <= 0x2064, r == 0xfeff, 0xe0000 <= r && r <= 0xe007f:
		return true
	}
	return false
}

// escaped appends a character as JSON escapes it.
func escaped(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// harmless is text without what a terminal acts on; on one line if that is wanted. What
// needs no change is returned as it is.
func harmless(text []byte, oneLine bool) []byte {
	var out []byte // nil as long as nothing was changed
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		bad := r == utf8.RuneError && n == 1
		if out == nil && (bad || acts(r) || oneLine && (r == '\n' || r == '\t')) {
			out = append(make([]byte, 0, len(text)+16), text[:i]...)
		}
		switch {
		case out == nil:
		case bad:
			out = utf8.AppendRune(out, utf8.RuneError)
		case oneLine && r == '\n':
			out = append(out, `\n`...)
		case oneLine && r == '\t':
			out = append(out, `\t`...)
		case acts(r):
			out = escaped(out, r)
		default:
			out = append(out, text[i:i+n]...)
		}
		i += n
	}
	if out == nil {
		return text
	}
	return out
}

// Harmless is text in which a terminal acts on nothing, on one line if that is wanted: what it would
// act on is shown as JSON escapes it. It is for text that others wrote, before styles are added.
func Harmless(text string, oneLine bool) string { return string(harmless([]byte(text), oneLine)) }

// line is text on one line, in which a terminal acts on nothing.
func line(text string) string { return string(harmless([]byte(text), true)) }

// block is text of several lines for printf: those after the first are indented, so
// that none looks like a line of ours.
type block string

// lines are whole lines of ours in which everything foreign is harmless already.
type lines string

// foreign makes the arguments of a format what may be printed in the midst of a line.
func foreign(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case block:
			out[i] = strings.ReplaceAll(string(arg), "\n", "\n  ")
		case string:
			out[i] = line(arg)
		case error:
			out[i] = line(arg.Error())
		default:
			out[i] = arg
		}
	}
	return out
}
