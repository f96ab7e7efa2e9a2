package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol/strict"
)

const (
	maxRead  = 60 << 10 // bytes of text in one answer; with the note it stays under the registry's limit
	sniffed  = 8 << 10  // bytes that are looked at to tell text from other data
	ctxEvery = 1 << 10  // reads between two looks at the context
)

var readSpec = tool.Spec{
	Name:        "read_file",
	Description: "Read a text file in the working directory, all of it or a range of lines.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, relative to the working directory"},` +
		`"offset":{"type":"integer","minimum":1,"description":"first line wanted; the first of the file is 1"},` +
		`"limit":{"type":"integer","minimum":1,"description":"how many lines are wanted at most"}},` +
		`"required":["path"],"additionalProperties":false}`),
}

type readInput struct {
	Path   string  `json:"path"`
	Offset *uint64 `json:"offset"` // lines, 1 for the first
	Limit  *uint64 `json:"limit"`  // lines
}

func (r *rooted) read(ctx context.Context, in readInput) (string, error) {
	first, most := uint64(1), ^uint64(0)
	if in.Offset != nil {
		first = *in.Offset
	}
	if in.Limit != nil {
		most = *in.Limit
	}
	switch {
	case first == 0:
		return "", &strict.Error{Path: "offset", Problem: "must be 1 or more"}
	case most == 0:
		return "", &strict.Error{Path: "limit", Problem: "must be 1 or more"}
	}
	f, info, err := r.openFile("read", in.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, sniffed)
	head, err := lines.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", r.explain("read", in.Path, err)
	}
	if len(head) == 0 {
		return "[the file is empty]", nil
	}
	if !isText(head) {
		return "", fmt.Errorf("read %s: it is not a text file (%d bytes)", in.Path, info.Size())
	}
	text, err := window(ctx, lines, first, most)
	if err != nil {
		return "", r.explain("read", in.Path, err)
	}
	return text, nil
}

// openFile opens a regular file for reading. Its errors are for the model.
func (r *rooted) openFile(attempt, path string) (*os.File, fs.FileInfo, error) {
	name, err := r.local(path)
	if err != nil {
		return nil, nil, err
	}
	// Opening a named pipe would wait for its other end, but for O_NONBLOCK.
	f, err := r.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, r.explain(attempt, path, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = r.explain(attempt, path, err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s %s: it is %s", attempt, path, kind(info.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// window returns the lines from first, most of them at the utmost, and says so
// where it left something out. It keeps no more than maxRead bytes.
func window(ctx context.Context, lines *bufio.Reader, first, most uint64) (string, error) {
	var text strings.Builder
	line := uint64(1) // the number of the line that is being read
	begun := false    // something of that line was read
	for reads := 0; ; reads++ {
		if reads%ctxEvery == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		piece, err := lines.ReadSlice('\n')
		begun = begun || len(piece) > 0
		wanted := line >= first && line-first < most
		switch {
		case line >= first && !wanted && len(piece) > 0:
			return fmt.Sprintf("%s[more lines follow; go on with offset %d]", text.String(), line), nil
		case wanted && text.Len()+len(piece) > maxRead:
			return overfull(text.String(), piece, line), nil
		case wanted:
			text.Write(piece)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if !begun {
				line--
			}
			if line < first {
				return "", fmt.Errorf("offset %d is past its end: it has %d lines", first, line)
			}
			return text.String(), nil
		case err != nil:
			return "", err
		default:
			line++
			begun = false
		}
	}
}

// overfull is the answer that is cut because piece does not fit. It is cut
// after a whole line, unless the first line alone is too long.
func overfull(text string, piece []byte, line uint64) string {
	if end := strings.LastIndexByte(text, '\n'); end >= 0 {
		return fmt.Sprintf("%s[more lines follow; go on with offset %d]", text[:end+1], line)
	}
	whole := text + string(piece)
	cut := maxRead
	for cut > 0 && !utf8.RuneStart(whole[cut]) {
		cut--
	}
	return fmt.Sprintf("%s\n[line %d is longer than %d bytes; the rest of it is left out; go on with offset %d]",
		whole[:cut], line, maxRead, line+1)
}

// isText reports whether head looks like the beginning of a text in UTF-8. Its
// end may be in the middle of a character.
func isText(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	for len(head) > 0 {
		r, size := utf8.DecodeRune(head)
		if r == utf8.RuneError && size == 1 {
			return !utf8.FullRune(head)
		}
		head = head[size:]
	}
	return true
}
