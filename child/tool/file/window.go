package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"nexus.internal/protocol/textcut"
)

// window is the part of a text that is wanted. It keeps no more than maxRead bytes.
type window struct {
	wanted   []lines // in order; those that are still to come
	marked   bool    // each begins with a line that tells which it is
	numbered bool

	text strings.Builder
}

// read returns the wanted lines, and says so where it left something out.
func (w *window) read(ctx context.Context, from *bufio.Reader) (string, error) {
	line := uint64(1) // the number of the line that is being read
	begun := false    // something of that line was read
	for reads := 0; ; reads++ {
		if reads%ctxEvery == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		piece, err := from.ReadSlice('\n')
		if !begun && line > w.wanted[0].Last && len(piece) > 0 {
			if len(w.wanted) == 1 {
				return w.goOn(line), nil
			}
			w.wanted = w.wanted[1:]
		}
		if line >= w.wanted[0].First && len(piece) > 0 && !w.take(piece, line, !begun) {
			return w.overfull(piece, line), nil
		}
		begun = begun || len(piece) > 0
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if !begun {
				line--
			}
			return w.end(line)
		case err != nil:
			return "", err
		default:
			line++
			begun = false
		}
	}
}

// take takes a piece of a line, unless there is no room for it.
func (w *window) take(piece []byte, line uint64, begins bool) bool {
	head := ""
	if begins && w.marked && line == w.wanted[0].First {
		head = fmt.Sprintf("[lines %d to %d]\n", line, w.wanted[0].Last)
		if text := w.text.String(); text != "" && !strings.HasSuffix(text, "\n") {
			head = "\n" + head
		}
	}
	if begins && w.numbered {
		head += fmt.Sprintf("%6d\t", line)
	}
	if w.text.Len()+len(head)+len(piece) > maxRead {
		return false
	}
	w.text.WriteString(head)
	w.text.Write(piece)
	return true
}

// goOn is the answer that ends before a line.
func (w *window) goOn(line uint64) string {
	if w.marked {
		return w.text.String()
	}
	return fmt.Sprintf("%s[more lines follow; go on with offset %d]", w.text.String(), line)
}

// end is the answer where the text ends, after its last line.
func (w *window) end(last uint64) (string, error) {
	first := w.wanted[0].First
	switch {
	case last >= first && len(w.wanted) == 1:
		return w.text.String(), nil
	case w.text.Len() == 0 && last < first:
		what := "offset"
		if w.marked {
			what = "range"
		}
		return "", fmt.Errorf("%s %d is past its end: it has %d lines", what, first, last)
	default:
		return line(w.text.String()) + fmt.Sprintf("[the file ends here: it has %d lines]", last), nil
	}
}

// overfull is the answer that is cut because piece does not fit. It is cut
// after a whole line, unless the first line alone is too long.
func (w *window) overfull(piece []byte, number uint64) string {
	text := w.text.String()
	if end := strings.LastIndexByte(text, '\n'); end >= 0 {
		return fmt.Sprintf("%s[more lines follow; go on with offset %d]", text[:end+1], number)
	}
	return fmt.Sprintf("%s\n[line %d is longer than %d bytes; the rest of it is left out; go on with offset %d]",
		textcut.Head(text+string(piece), maxRead), number, maxRead, number+1)
}

// line is a text that ends with a line's end.
func line(text string) string {
	if strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
