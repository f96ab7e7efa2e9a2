package shell

import (
	"io"
	"strings"
)

// terminalEnv is what a program at a terminal finds in its environment. A pager would wait for
// somebody who turns its pages.
var terminalEnv = []string{"TERM=xterm", "PAGER=cat", "GIT_PAGER=cat"}

// maxSequence is how long a string for a terminal may be, in bytes: what goes on is text.
const maxSequence = 4 << 10

// cleaner writes what a terminal would show as plain text: without control sequences, with
// lines where a line is written anew, and without what else a terminal does not show. It is
// for one goroutine. Text is not laid out as on a screen.
type cleaner struct {
	to     io.Writer
	state  cleanerState
	length int  // bytes of the sequence so far
	begun  bool // the line has text
	anew   bool // the cursor was moved to where other text may be
}

type cleanerState int

const (
	plain    cleanerState = iota
	escaped               // after ESC
	control               // after ESC [
	designed              // after ESC (, before the one that names a character set
	text                  // a string that ends with BEL or ESC \
	textEnd               // an ESC in it
)

// Write takes all of b, unless what it is written to does not.
func (c *cleaner) Write(b []byte) (int, error) {
	shown := make([]byte, 0, len(b))
	for _, sign := range b {
		shown = c.next(shown, sign)
	}
	if _, err := c.to.Write(shown); err != nil {
		return 0, err
	}
	return len(b), nil
}

// next adds to shown what comes of one more byte.
func (c *cleaner) next(shown []byte, sign byte) []byte {
	if c.length++; c.state == plain || c.length > maxSequence || sign == 0x18 || sign == 0x1a { // the last cancel a sequence
		c.state, c.length = plain, 0
		return c.show(shown, sign)
	}
	switch c.state {
	case escaped:
		switch {
		case sign == '[':
			c.state = control
		case strings.IndexByte("]PX^_", sign) >= 0:
			c.state = text
		case ' ' <= sign && sign <= '/':
			c.state = designed
		default:
			c.state = plain
		}
	case control:
		if '@' <= sign && sign <= '~' {
			c.state = plain
			c.anew = c.anew || strings.IndexByte("ABEFHdf", sign) >= 0
		}
	case designed:
		c.state = plain
	case text:
		if sign == '\a' {
			c.state = plain
		} else if sign == '\x1b' {
			c.state = textEnd
		}
	case textEnd:
		c.state = plain
	case plain:
	}
	return shown
}

// show adds one byte that is in no sequence.
func (c *cleaner) show(shown []byte, sign byte) []byte {
	switch {
	case sign == '\x1b':
		c.state = escaped
	case sign == '\r':
		c.anew = true
	case sign == '\n':
		c.begun, c.anew = false, false
		return append(shown, '\n')
	case sign == '\t', sign >= ' ' && sign != 0x7f:
		if c.anew && c.begun {
			shown = append(shown, '\n')
		}
		c.begun, c.anew = true, false
		return append(shown, sign)
	}
	return shown
}
