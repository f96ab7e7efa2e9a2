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
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

const (
	maxRead  = 60 << 10 // bytes of text in one answer; with the note it stays under the registry's limit
	sniffed  = 8 << 10  // bytes that are looked at to tell text from other data
	ctxEvery = 1 << 10  // reads between two looks at the context
	maxImage = 5 << 20  // bytes
)

var readSpec = tool.Spec{
	Name:        "read_file",
	Description: "Read a text file, all of it or a range of lines, or look at an image.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, absolute or relative to the working directory"},` +
		`"offset":{"type":"integer","minimum":1,"description":"first line wanted; the first of the file is 1"},` +
		`"limit":{"type":"integer","minimum":1,"description":"how many lines are wanted at most"}},` +
		`"required":["path"],"additionalProperties":false}`),
}

type readInput struct {
	Path   string  `json:"path"`
	Offset *uint64 `json:"offset"` // lines, 1 for the first
	Limit  *uint64 `json:"limit"`  // lines
}

func (in readInput) about() (path, summary string) { return in.Path, "read " + in.Path }

func (in readInput) run(ctx context.Context, f *files, s Space) (tool.Result, error) {
	first, most := protocol.ValueOr(in.Offset, 1), protocol.ValueOr(in.Limit, ^uint64(0))
	switch {
	case first == 0:
		return tool.Result{}, &strict.Error{Path: "offset", Problem: "must be 1 or more"}
	case most == 0:
		return tool.Result{}, &strict.Error{Path: "limit", Problem: "must be 1 or more"}
	}
	file, info, err := Open(s, in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	defer file.Close()
	head, err := peek(file)
	switch {
	case err != nil:
		return tool.Result{}, explain("read", in.Path, err)
	case len(head) == 0:
		return tool.Result{Text: "[the file is empty]"}, nil
	case isImage(head) && f.options.Images != nil:
		return f.image(ctx, in.Path, file, info)
	}
	e := sniff(head)
	if e == notText {
		return tool.Result{}, fmt.Errorf("read %s: it is not a text file (%d bytes)", in.Path, info.Size())
	}
	lines := bufio.NewReaderSize(e.reader(cancelled{ctx, file}), sniffed)
	if mark, err := lines.Peek(len(byteMark)); err == nil && string(mark) == byteMark {
		_, _ = lines.Discard(len(byteMark)) // it was peeked at
	}
	text, err := window(ctx, lines, first, most)
	if err != nil {
		return tool.Result{}, explain("read", in.Path, err)
	}
	return tool.Result{Text: text}, nil
}

// peek reads the beginning of a file, which is then read from the start again.
func peek(f *os.File) ([]byte, error) {
	head := make([]byte, sniffed)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return head[:n], err
}

// isImage reports whether head begins as an image that models read.
func isImage(head []byte) bool {
	for _, magic := range []string{"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP"
}

// image gives the model an image to look at.
func (f *files) image(ctx context.Context, asked string, file *os.File, info fs.FileInfo) (tool.Result, error) {
	if info.Size() > maxImage {
		return tool.Result{}, fmt.Errorf("read %s: it is an image of %d bytes, at most %d are taken", asked, info.Size(), maxImage)
	}
	data, err := io.ReadAll(io.LimitReader(cancelled{ctx, file}, maxImage))
	if err != nil {
		return tool.Result{}, explain("read", asked, err)
	}
	image, err := f.options.Images.Put(data, "", filepath.Base(asked))
	if err != nil {
		return tool.Result{}, fmt.Errorf("read %s: %w", asked, err)
	}
	return tool.Result{Text: fmt.Sprintf("[the image %s, %s, %d bytes]", asked, image.Mime, image.Size), Images: []protocol.Image{image}}, nil
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
	return fmt.Sprintf("%s\n[line %d is longer than %d bytes; the rest of it is left out; go on with offset %d]",
		textcut.Head(text+string(piece), maxRead), line, maxRead, line+1)
}
