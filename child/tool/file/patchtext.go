package file

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file reads a patch, in either of two forms, into what it does to each file:
//
//	*** Begin Patch            diff --git a/x b/x
//	*** Update File: x         --- a/x
//	@@ func a() {              +++ b/x
//	 context                   @@ -1,2 +1,2 @@
//	-old                        context
//	+new                       -old
//	*** End Patch              +new

const (
	maxPatch   = 1 << 20 // bytes of a patch
	maxPatched = 100     // files of a patch
)

// filePatch is what a patch does to one file.
type filePatch struct {
	line       int    // of the patch, from 1, where it begins
	from, to   string // the file's paths, as they are written: from is "" for a new file, to for one that is deleted
	added      string // what a new file holds
	hunks      []hunk
	executable *bool // nil: as it was
}

// hunk is one change within a file.
type hunk struct {
	line    int      // of the patch, from 1
	stated  int      // the line of the file, from 1, where it says that it begins; 0: it does not say
	anchors []string // lines that stand before it, in their order
	lines   []hunkLine
	atEnd   bool  // it ends where the file ends
	ended   *bool // whether the file's last line has a line end then; nil: as before
	// oldLeft and newLeft are how many lines are to come, as far as the hunk says so: models miscount.
	oldLeft, newLeft int
}

// hunkLine is a line of a hunk, without its end.
type hunkLine struct {
	op   byte // ' ' stays, '-' goes, '+' comes
	text string
}

// patchReader reads a patch line by line.
type patchReader struct {
	lines []string
	at    int // the next line
}

// patchError is an error in the patch itself.
func patchError(line int, format string, a ...any) error {
	return fmt.Errorf("line %d of the patch: %w", line, fmt.Errorf(format, a...))
}

// parsePatch reads a patch. What it returns has at least one file, and hunks that change something.
func parsePatch(text string) (files []filePatch, err error) {
	if len(text) > maxPatch {
		return nil, fmt.Errorf("the patch has %d bytes, at most %d are read", len(text), maxPatch)
	}
	r := &patchReader{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	r.skipBlank()
	first := r.peek()
	if strings.HasSuffix(first, "\r") { // they are the patch's, not the files'
		for i, line := range r.lines {
			r.lines[i] = strings.TrimSuffix(line, "\r")
		}
		first = r.peek()
	}
	switch {
	case r.over():
		return nil, errors.New("the patch is empty")
	case strings.TrimSpace(first) == beginPatch:
		files, err = r.marked()
	case strings.HasPrefix(first, gitHeader), strings.HasPrefix(first, oldHeader):
		files, err = r.unified()
	default:
		return nil, patchError(r.at+1, "%s: a patch begins with %q, %q or %q", quoted(first), beginPatch, gitHeader, oldHeader)
	}
	switch {
	case err != nil:
		return nil, err
	case len(files) == 0:
		return nil, errors.New("the patch changes no file")
	case len(files) > maxPatched:
		return nil, fmt.Errorf("the patch changes %d files, at most %d are changed by one", len(files), maxPatched)
	}
	return files, nil
}

// peek is the next line, "" after the last.
func (r *patchReader) peek() string { return r.ahead(0) }

func (r *patchReader) ahead(n int) string {
	if r.at+n < len(r.lines) {
		return r.lines[r.at+n]
	}
	return ""
}

func (r *patchReader) over() bool { return r.at >= len(r.lines) }

func (r *patchReader) skipBlank() {
	for !r.over() && strings.TrimSpace(r.peek()) == "" {
		r.at++
	}
}

// The lines of the form with marks.
const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	addFile    = "*** Add File: "
	deleteFile = "*** Delete File: "
	updateFile = "*** Update File: "
	moveTo     = "*** Move to: "
	endOfFile  = "*** End of File"
)

// marked reads a patch between marks.
func (r *patchReader) marked() (files []filePatch, err error) {
	r.at++
	for r.skipBlank(); !r.over(); r.skipBlank() {
		line := r.peek()
		f := filePatch{line: r.at + 1}
		r.at++
		if strings.TrimSpace(line) == endPatch {
			if r.skipBlank(); !r.over() {
				return nil, patchError(r.at+1, "%s comes after %q", quoted(r.peek()), endPatch)
			}
			return files, nil
		}
		mark, path, _ := strings.Cut(line, ": ")
		path = strings.TrimSpace(path)
		switch mark += ": "; mark {
		case addFile:
			f.to = path
			f.added, err = r.markedContent()
		case deleteFile:
			f.from = path
		case updateFile:
			f.from, f.to = path, path
			if to, moved := strings.CutPrefix(r.peek(), moveTo); moved {
				f.to = strings.TrimSpace(to)
				r.at++
			}
			f.hunks, err = r.hunks(r.atMark)
		default:
			err = patchError(f.line, "%s, want %q, %q, %q or %q", quoted(line), addFile, updateFile, deleteFile, endPatch)
		}
		switch {
		case err != nil:
			return nil, err
		case path == "" || mark == updateFile && f.to == "":
			return nil, patchError(f.line, "it names no file")
		case mark == updateFile && f.from == f.to && len(f.hunks) == 0:
			return nil, patchError(f.line, "the update of %s has no hunk", f.from)
		}
		files = append(files, f)
	}
	return nil, patchError(len(r.lines), "there it ends without %q: is it whole?", endPatch)
}

// atMark reports whether the next line is one of those between files.
func (r *patchReader) atMark(hunk) bool {
	return strings.HasPrefix(r.peek(), "*** ") && strings.TrimSpace(r.peek()) != endOfFile
}

// markedContent reads what a new file holds.
func (r *patchReader) markedContent() (string, error) {
	var b strings.Builder
	for !r.over() {
		text, ok := strings.CutPrefix(r.peek(), "+")
		if !ok {
			blank := r.at
			if r.skipBlank(); r.over() || r.atMark(hunk{}) {
				break
			}
			return "", patchError(blank+1, "%s: each line of a new file begins with +", quoted(r.lines[blank]))
		}
		b.WriteString(text + "\n")
		r.at++
	}
	return b.String(), nil
}

// hunks reads hunks until the next line of a file's own.
func (r *patchReader) hunks(ends func(hunk) bool) (hunks []hunk, err error) {
	for {
		h, err := r.hunk(ends)
		if err != nil {
			return nil, err
		}
		if h.line == 0 {
			return hunks, nil
		}
		hunks = append(hunks, h)
	}
}

// hunk reads one hunk; one without lines comes after the last.
func (r *patchReader) hunk(ends func(hunk) bool) (h hunk, err error) {
	for ; !r.over() && !ends(h); r.at++ {
		line := r.peek()
		begins := strings.HasPrefix(line, "@@")
		if begins && len(h.lines) > 0 {
			break
		}
		if h.line == 0 && line != "" {
			h.line = r.at + 1
		}
		switch {
		case begins:
			h.locate(line)
		case strings.TrimSpace(line) == endOfFile:
			h.atEnd = true
		case line == "" && (h.line == 0 || h.atEnd):
		default:
			if err := h.add(line); err != nil {
				return h, patchError(r.at+1, "%s: %w", quoted(line), err)
			}
		}
	}
	// An empty line after a hunk is rarely meant to be of it, and needed only if nothing else tells the place.
	last := len(h.lines)
	for last > 0 && h.lines[last-1] == (hunkLine{' ', ""}) {
		last--
	}
	if !h.atEnd && slices.ContainsFunc(h.lines[:last], hunkLine.isOld) {
		h.lines = h.lines[:last]
	}
	if h.line > 0 && !slices.ContainsFunc(h.lines, hunkLine.changes) {
		return h, patchError(h.line, "the hunk changes nothing: no line of it begins with + or -")
	}
	return h, nil
}

func (l hunkLine) changes() bool { return l.op != ' ' }
func (l hunkLine) isOld() bool   { return l.op != '+' }

// locate reads a line that begins with @@: either numbers of lines, or a line that stands before the hunk.
func (h *hunk) locate(line string) {
	line = strings.TrimSpace(strings.TrimPrefix(line, "@@"))
	if words := strings.Fields(line); len(words) > 1 {
		at, old, ok := lineRange(words[0], "-")
		_, new, ok2 := lineRange(words[1], "+")
		if ok && ok2 {
			h.stated, h.oldLeft, h.newLeft = at, old, new
			return
		}
	}
	if anchor := strings.TrimSpace(strings.TrimSuffix(line, "@@")); anchor != "" && anchor != "..." {
		h.anchors = append(h.anchors, anchor)
	}
}

// lineRange reads "-3,4": lines from 3 on, 4 of them; "-3" is one.
func lineRange(text, sign string) (at, count int, ok bool) {
	text, ok = strings.CutPrefix(text, sign)
	from, many, counted := strings.Cut(text, ",")
	at, err := strconv.Atoi(from)
	if count = 1; counted && err == nil {
		count, err = strconv.Atoi(many)
	}
	return at, count, ok && err == nil
}

// add takes a line of the hunk itself.
func (h *hunk) add(line string) error {
	op := byte(' ')
	text := ""
	if line != "" {
		op, text = line[0], strings.TrimPrefix(strings.TrimSuffix(line[1:], "\r"), byteMark)
	}
	switch op {
	case ' ', '-', '+':
		h.lines = append(h.lines, hunkLine{op, text})
		if op != '+' {
			h.oldLeft--
		}
		if op != '-' {
			h.newLeft--
		}
		return nil
	case '\\': // "\ No newline at end of file": the line before has no end
		if len(h.lines) == 0 {
			return errors.New("no line stands before it")
		}
		h.atEnd, h.ended = true, new(h.lines[len(h.lines)-1].op == '-')
		return nil
	default:
		return errors.New("a line of a hunk begins with a space, + or -")
	}
}
