package cli

import (
	"errors"
	"io"
	"strings"

	"nexus.internal/bridge/api"
)

// maxAnswer is the longest answer that a server keeps, in bytes (SPEC §7).
const maxAnswer = 8 << 20

// answer prints an answer as it comes in and sees to it that nothing of it is
// missing at the end.
type answer struct {
	out    io.Writer
	broken error           // of out; what it does not take does not stop the turn
	text   strings.Builder // what came, up to maxAnswer
	length int             // bytes of all that came
	last   byte
	blank  string // what came before begun, up to maxBlank bytes
	begun  bool   // something was printed of this attempt
}

// maxBlank bounds what is held back of an answer that begins with blanks, in bytes.
const maxBlank = 4 << 10

// add prints the next piece.
func (t *answer) add(chunk string) {
	if chunk == "" {
		return
	}
	t.length += len(chunk)
	t.last = chunk[len(chunk)-1]
	t.text.WriteString(chunk[:min(len(chunk), maxAnswer-t.text.Len())])
	if !t.begun { // blank so far: it may be that nothing else comes
		t.blank += chunk
		if strings.TrimSpace(chunk) == "" && len(t.blank) < maxBlank {
			return
		}
		t.begun, chunk = true, t.blank
	}
	if t.broken == nil {
		_, t.broken = io.WriteString(t.out, chunk)
	}
}

// restart voids what was printed: the answer begins anew, on a line of its own.
func (t *answer) restart() {
	_ = t.end() // reported at the end, too
	t.text.Reset()
	t.length, t.last, t.blank, t.begun = 0, 0, "", false
}

var errPieces = errors.New("what is printed is not the answer: it came incomplete; ask for it again with --json and the same --request-id")

// complete compares what came with what the server kept, and prints what did
// not come: all of it for a turn that had ended before.
func (t *answer) complete(result api.SendResult) error {
	if result.Content == nil { // cancelled
		return nil
	}
	missing, ok := strings.CutPrefix(*result.Content, t.text.String())
	switch {
	case ok && (t.length == t.text.Len() || result.Truncated):
		t.add(missing)
		return nil
	case result.Truncated && strings.HasPrefix(t.text.String(), *result.Content):
		return nil
	}
	return errPieces
}

// after takes what stands in the answer between a text and one behind a tool call. It is not printed:
// what was shown of the call stands there.
func (t *answer) after(between string) {
	t.newline()
	t.length += len(between)
	t.text.WriteString(between[:min(len(between), maxAnswer-t.text.Len())])
}

// newline ends the line that was begun.
func (t *answer) newline() {
	if t.begun && t.last != '\n' && t.broken == nil {
		_, t.broken = io.WriteString(t.out, "\n")
		t.last = '\n'
	}
}

func (t *answer) end() error {
	t.newline()
	return t.broken
}
