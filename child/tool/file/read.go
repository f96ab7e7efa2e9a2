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

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
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
		`"limit":{"type":"integer","minimum":1,"description":"how many lines are wanted at most"},` +
		`"ranges":{"type":"array","minItems":1,"maxItems":50,"description":"in the place of offset and limit: ranges of lines, in order",` +
		`"items":{"type":"object","properties":{"first":{"type":"integer","minimum":1},"last":{"type":"integer","minimum":1}},` +
		`"required":["first","last"],"additionalProperties":false}},` +
		`"line_numbers":{"type":"boolean","description":"the number and a tab before each line, which are no part of the file; false by default"}},` +
		`"required":["path"],"additionalProperties":false}`),
}

type readInput struct {
	Path   string  `json:"path"`
	Offset *uint64 `json:"offset"` // lines, 1 for the first
	Limit  *uint64 `json:"limit"`  // lines
	Ranges []lines `json:"ranges" wire:"default"`
	// LineNumbers puts them before the lines.
	LineNumbers *bool `json:"line_numbers"`
}

// lines are the first and the last of some lines of a file, 1 for the first.
type lines struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// maxRanges bounds the ranges of one call.
const maxRanges = 50

// wanted checks which lines are asked for.
func (in readInput) wanted() ([]lines, error) {
	first, most := protocol.ValueOr(in.Offset, 1), protocol.ValueOr(in.Limit, ^uint64(0))
	switch {
	case first == 0:
		return nil, &strict.Error{Path: "offset", Problem: "must be 1 or more"}
	case most == 0:
		return nil, &strict.Error{Path: "limit", Problem: "must be 1 or more"}
	case len(in.Ranges) == 0:
		return []lines{{first, first + min(most-1, ^uint64(0)-first)}}, nil
	case in.Offset != nil || in.Limit != nil:
		return nil, &strict.Error{Path: "ranges", Problem: "excludes offset and limit"}
	case len(in.Ranges) > maxRanges:
		return nil, &strict.Error{Path: "ranges", Problem: fmt.Sprintf("has %d entries, at most %d are taken", len(in.Ranges), maxRanges)}
	}
	before := uint64(0)
	for i, r := range in.Ranges {
		if r.First <= before || r.Last < r.First {
			return nil, &strict.Error{Path: fmt.Sprintf("ranges[%d]", i), Problem: "must be lines from first to last, after those of the range before"}
		}
		before = r.Last
	}
	return in.Ranges, nil
}

func (in readInput) about() (paths []string, summary string) {
	return []string{in.Path}, "read " + in.Path
}

func (in readInput) run(ctx context.Context, f *files, s Space) (tool.Result, error) {
	wanted, err := in.wanted()
	if err != nil {
		return tool.Result{}, err
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
	from := bufio.NewReaderSize(e.reader(cancelled{ctx, file}), sniffed)
	if mark, err := from.Peek(len(byteMark)); err == nil && string(mark) == byteMark {
		_, _ = from.Discard(len(byteMark)) // it was peeked at
	}
	text, err := (&window{wanted: wanted, marked: len(in.Ranges) > 0, numbered: protocol.Value(in.LineNumbers)}).read(ctx, from)
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
