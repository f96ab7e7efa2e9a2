package shell

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"nexus.internal/child/tool"
	"nexus.internal/protocol/textcut"
)

const (
	// maxStream is how much output of a call is sent while it runs, in bytes.
	maxStream = 1 << 20
	// sample is how much of the output tells whether it is text.
	sample = 8 << 10
)

// collector keeps the beginning and the end of what is written to it, and all of
// it in a file if that is more. It is for one goroutine.
type collector struct {
	half   int    // bytes kept of either end
	head   []byte // at most 2*half, until there is more
	tail   []byte // a ring of half bytes, once there is more
	total  int64
	whole  whole
	heard  tool.Progress // nil: nobody listens
	told   int64         // bytes, to heard
	kept   *tool.Kept
	binary bool
	rest   []byte // of a character whose end has not come
}

func newCollector(most int, dir string, heard tool.Progress, kept *tool.Kept) *collector {
	return &collector{half: most / 2, whole: whole{dir: dir, most: maxFile}, heard: heard, kept: kept}
}

// Write takes all of b; there is no error.
func (c *collector) Write(b []byte) (int, error) {
	if c.total < sample {
		c.binary = c.binary || binary(b[:min(int64(len(b)), sample-c.total)])
	}
	c.stream(b)
	c.kept.Add(b)
	fits := len(c.head)+len(b) <= 2*c.half && c.tail == nil
	if fits {
		c.head = append(c.head, b...)
	} else {
		c.spill(b)
	}
	c.total += int64(len(b))
	return len(b), nil
}

// spill takes what goes beyond the head.
func (c *collector) spill(b []byte) {
	if c.tail == nil {
		c.tail = make([]byte, 0, c.half)
		c.whole.save(c.head, 0)
		over := c.head[min(len(c.head), c.half):]
		c.head = c.head[:len(c.head)-len(over)]
		c.keep(over)
	}
	c.whole.save(b, c.total)
	if missing := c.half - len(c.head); missing > 0 {
		n := min(missing, len(b))
		c.head, b = append(c.head, b[:n]...), b[n:]
	}
	c.keep(b)
}

// keep takes the end of b into the tail.
func (c *collector) keep(b []byte) {
	if len(b) >= c.half {
		c.tail = append(c.tail[:0], b[len(b)-c.half:]...)
		return
	}
	if over := len(c.tail) + len(b) - c.half; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	c.tail = append(c.tail, b...)
}

// stream gives b to the listener, in whole characters.
func (c *collector) stream(b []byte) {
	if c.heard == nil || !c.heard.Wanted() || c.binary || c.told > maxStream {
		return
	}
	if c.told += int64(len(b)); c.told > maxStream {
		c.heard.Report("\n[there is more output than is shown as it comes]\n")
		return
	}
	b = append(c.rest, b...)
	cut := len(b) - textcut.Partial(b)
	c.rest = slices.Clone(b[cut:])
	if cut > 0 {
		c.heard.Report(printable(b[:cut]))
	}
}

func (c *collector) close() { c.whole.close() }

// text is what a result shows, ended by a newline unless it is empty.
func (c *collector) text() string {
	switch {
	case c.binary && c.tail == nil:
		return fmt.Sprintf("[%d bytes of binary output, not shown: redirect it to a file]\n", c.total)
	case c.binary:
		return fmt.Sprintf("[%d bytes of binary output, not shown: %s]\n", c.total, c.whole.where(c.total))
	case c.tail == nil:
		return line(printable(c.head))
	}
	head, tail := textcut.Whole(c.head), textcut.Whole(c.tail)
	missing := c.total - int64(len(head)) - int64(len(tail))
	return line(printable(head)) + fmt.Sprintf("[%d of %d bytes are left out here: %s]\n", missing, c.total, c.whole.where(c.total)) +
		line(printable(tail))
}

func line(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// printable is b as text: what is not UTF-8 becomes U+FFFD, NUL its symbol.
func printable(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\u2400")
}

// binary reports whether b is no text: more than a tenth of it is neither UTF-8
// nor what a terminal shows. A little may be anything.
func binary(b []byte) bool {
	const few = 16
	odd := 0
	for rest := b[:len(b)-textcut.Partial(b)]; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 || r < ' ' && !strings.ContainsRune("\t\n\v\f\r\b\a\x1b", r) {
			odd++
		}
		rest = rest[n:]
	}
	return odd > few && odd > len(b)/10
}
