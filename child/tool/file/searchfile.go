package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"nexus.internal/protocol/textcut"
)

// What an answer has of the matches.
const (
	outputLines  = "lines"
	outputFiles  = "files"
	outputCounts = "counts"
)

// search is one search under way.
type search struct {
	at            *place
	base          string // how answers name it
	matcher       *matcher
	lines         *bufio.Reader // of the file that is being read
	most          int           // lines, or files, wanted
	before, after int           // lines around a match
	output        string
	multiline     bool

	found    strings.Builder
	count    int // lines, or files, found
	total    int // lines counted
	searched int // files
	binary   int // files passed over
	large    int // files too large for multiline
	unread   int // files that could not be read
	more     bool
}

// noun is what count counts.
func (s *search) noun() string {
	if s.output == outputLines {
		return "line"
	}
	return "file"
}

// file searches one file, relative to the place. It returns errEnough when no
// more is wanted.
func (s *search) file(ctx context.Context, name string) error {
	f, _, err := s.at.open(filepath.Join(s.at.name, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is %s", kind(info.Mode()))
	}
	head, err := peek(f)
	if err != nil {
		return err
	}
	e := sniff(head)
	switch {
	case e == notText:
		s.binary++
		return nil
	case s.multiline && info.Size() > maxWhole:
		s.large++
		return nil
	}
	s.searched++
	text := e.reader(cancelled{ctx, f})
	found := &fileMatches{search: s, name: textcut.Name(path.Join(s.base, name))}
	if s.multiline {
		err = found.whole(ctx, text)
	} else {
		err = found.byLine(ctx, text)
	}
	if errors.Is(err, errKnown) {
		err = nil
	}
	if err == nil && s.output == outputCounts && found.count > 0 {
		s.total += found.count
		if !s.add(fmt.Sprintf("%s:%d\n", found.name, found.count), true) {
			return errEnough
		}
	}
	return err
}

// errKnown ends the search of a file of which all that is wanted is known.
var errKnown = errors.New("known")

// fileMatches are the matches of one file.
type fileMatches struct {
	*search
	name  string
	count int // lines with a match
	last  int // the last line that the answer has; 0 for none
	left  int // lines to show after the last match
	// recent are the lines before the one that is looked at, most of them search.before.
	recent []string
}

// matched takes a line with a match.
func (m *fileMatches) matched(number int, line string) error {
	m.count++
	switch m.output {
	case outputCounts:
		return nil
	case outputFiles:
		if !m.add(m.name+"\n", true) {
			return errEnough
		}
		return errKnown
	}
	if m.search.count == m.most {
		m.more = true
		return errEnough
	}
	for i, text := range m.recent {
		if err := m.around(number-len(m.recent)+i, text); err != nil {
			return err
		}
	}
	m.recent, m.left = m.recent[:0], m.after
	m.part(number)
	if !m.add(fmt.Sprintf("%s:%d:%s\n", m.name, number, line), true) {
		return errEnough
	}
	return nil
}

// other takes a line without a match.
func (m *fileMatches) other(number int, line string) error {
	if m.left > 0 {
		m.left--
		return m.around(number, line)
	}
	if m.before > 0 {
		if len(m.recent) == m.before {
			m.recent = append(m.recent[:0], m.recent[1:]...)
		}
		m.recent = append(m.recent, line)
	}
	return nil
}

// around shows a line that is near a match.
func (m *fileMatches) around(number int, line string) error {
	m.part(number)
	if !m.add(fmt.Sprintf("%s-%d-%s\n", m.name, number, line), false) {
		return errEnough
	}
	return nil
}

// part sets a line apart from the one before it in the answer, if these are not neighbours.
func (m *fileMatches) part(number int) {
	if m.before+m.after > 0 && m.found.Len() > 0 && (m.last == 0 || number != m.last+1) {
		m.found.WriteString("--\n")
	}
	m.last = number
}

// showsOthers reports whether lines without a match can be in the answer.
func (m *fileMatches) showsOthers() bool { return m.output == outputLines && m.before+m.after > 0 }

// byLine looks for matches within lines, as they are read. A line that is longer than the buffer
// is looked at in pieces.
func (m *fileMatches) byLine(ctx context.Context, text io.Reader) error {
	m.lines.Reset(text)
	first, matched := "", false // how the line begins, if that may be shown, and whether it matched
	begun := false
	for number, reads := 1, 0; ; reads++ {
		if reads%ctxEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := m.lines.ReadSlice('\n')
		piece := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if reads == 0 {
			piece = bytes.TrimPrefix(piece, []byte(byteMark))
		}
		if !begun && m.showsOthers() {
			first = excerpt(piece, 0)
		}
		begun = begun || len(line) > 0
		if len(line) > 0 && !matched {
			if at, _ := m.matcher.find(ctx, piece); at >= 0 {
				matched = true
				if err := m.matched(number, excerpt(piece, at)); err != nil {
					return err
				}
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			if errors.Is(err, bufio.ErrBufferFull) { // the line goes on
				continue
			}
			return err
		}
		if begun && !matched && m.showsOthers() {
			if err := m.other(number, first); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		number++
		begun, matched = false, false
	}
}

// whole looks for matches that may have several lines.
func (m *fileMatches) whole(ctx context.Context, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, 2*maxWhole))
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, []byte(byteMark)), []byte("\r\n"), []byte("\n"))
	begin, end := m.next(ctx, text, 0) // of a match, from the beginning of a line
	for number, at := 1, 0; at < len(text); number++ {
		if ctx.Err() != nil { // whatever was found since
			return ctx.Err()
		}
		next := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		line := bytes.TrimSuffix(text[at:next], []byte("\n"))
		if begin >= 0 && begin < next {
			err = m.matched(number, excerpt(line, max(0, begin-at)))
			if end <= next {
				begin, end = m.next(ctx, text, next)
			}
		} else if m.showsOthers() {
			err = m.other(number, excerpt(line, 0))
		}
		if err != nil {
			return err
		}
		at = next
	}
	return ctx.Err()
}

// next is the first match from a place on; -1 if there is none.
func (m *fileMatches) next(ctx context.Context, text []byte, from int) (begin, end int) {
	if begin, end = m.matcher.find(ctx, text[from:]); begin < 0 {
		return -1, -1
	}
	return from + begin, from + end
}

// add takes a line into the answer, unless that is full; only one with a match counts.
func (s *search) add(line string, counts bool) bool {
	if counts && s.count == s.most || s.found.Len()+len(line) > maxRead {
		s.more = true
		return false
	}
	if counts {
		s.count++
	}
	s.found.WriteString(line)
	return true
}

// excerpt is a line, or what is around its match if it is long.
func excerpt(line []byte, at int) string {
	if len(line) <= maxShown {
		return string(line)
	}
	before := textcut.Head(line, at-beforeMatch)
	rest := line[len(before):]
	shown := textcut.Head(rest, maxShown)
	text := string(shown)
	if len(before) > 0 {
		text = "…" + text
	}
	if len(shown) < len(rest) {
		text += "…"
	}
	return text
}

// answer is what was found, and what there is to know about the rest.
func (s *search) answer() string {
	var b strings.Builder
	b.WriteString(s.found.String())
	passed := ""
	if s.binary > 0 {
		passed = fmt.Sprintf(", %d passed over as no text", s.binary)
	}
	switch {
	case s.more:
		fmt.Fprintf(&b, "[there are more than these %d %s; narrow the pattern, path or glob]\n", s.count, s.noun()+"s")
	case s.output == outputCounts && s.count > 0:
		fmt.Fprintf(&b, "[%d %s in %d of %d files]\n", s.total, plural(s.total, "line"), s.count, s.searched)
	case s.count == 0:
		fmt.Fprintf(&b, "[no line matches in %d %s%s]\n", s.searched, plural(s.searched, "file"), passed)
	}
	if s.large > 0 {
		fmt.Fprintf(&b, "[%d %s of more than %d MiB left out, as multiline reads files as a whole]\n", s.large, plural(s.large, "file"), maxWhole>>20)
	}
	if s.unread > 0 {
		fmt.Fprintf(&b, "[%d %s could not be read]\n", s.unread, plural(s.unread, "file"))
	}
	return b.String()
}
