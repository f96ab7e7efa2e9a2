package file

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The lines of a unified diff between files.
const (
	gitHeader = "diff --git "
	oldHeader = "--- "
	newHeader = "+++ "
	nowhere   = "/dev/null"
)

// unified reads a unified diff: of git, or of diff -u.
func (r *patchReader) unified() (files []filePatch, err error) {
	for r.skipBlank(); !r.over(); r.skipBlank() {
		f := filePatch{line: r.at + 1}
		if err := r.diff(&f); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// diff reads what a unified diff says of one file.
func (r *patchReader) diff(f *filePatch) (err error) {
	var renamed, isNew, deleted bool
	if rest, ok := strings.CutPrefix(r.peek(), gitHeader); ok {
		r.at++
		if renamed, isNew, deleted, err = r.extended(f); err != nil {
			return err
		}
		if half := len(rest) / 2; !renamed && len(rest)%2 == 1 && rest[half] == ' ' {
			if f.from, f.to, err = diffPaths(rest[:half], rest[half+1:]); err != nil {
				return patchError(f.line, "%w", err)
			}
		}
	}
	if old, ok := strings.CutPrefix(r.peek(), oldHeader); ok {
		to, ok := strings.CutPrefix(r.ahead(1), newHeader)
		if !ok {
			return patchError(r.at+2, "%s, want %q", quoted(r.ahead(1)), newHeader)
		}
		if !renamed { // else the names are known, and may stand here without a/ and b/
			if f.from, f.to, err = diffPaths(old, to); err != nil {
				return patchError(r.at+1, "%w", err)
			}
		}
		r.at += 2
	}
	if isNew {
		f.from = ""
	}
	if deleted {
		f.to = ""
	}
	if r.at+1 == f.line {
		return patchError(f.line, "%s, want %q or %q", quoted(r.peek()), gitHeader, oldHeader)
	}
	if f.hunks, err = r.hunks(r.atHeader); err != nil {
		return err
	}
	switch {
	case f.from == "" && f.to == "":
		return patchError(f.line, "it names no file")
	case f.from == "":
		return f.contentOfHunks()
	case f.to == f.from && len(f.hunks) == 0 && f.executable == nil:
		return patchError(f.line, "it changes nothing of %s", f.to)
	}
	return nil
}

// extended reads the lines of git between "diff --git" and "---".
func (r *patchReader) extended(f *filePatch) (renamed, isNew, deleted bool, err error) {
	for ; !r.over(); r.at++ {
		line := r.peek()
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "index "), strings.HasPrefix(line, "similarity index "), strings.HasPrefix(line, "dissimilarity index "), strings.HasPrefix(line, "old mode "):
		case strings.HasPrefix(line, "new file mode "), strings.HasPrefix(line, "new mode "):
			isNew = isNew || words[1] == "file"
			switch mode := words[len(words)-1]; {
			case mode == "100755":
				f.executable = new(true)
			case mode != "100644":
				err = fmt.Errorf("mode %s: only regular files are changed", mode)
			case !isNew:
				f.executable = new(false)
			}
		case strings.HasPrefix(line, "deleted file mode "):
			deleted = true
		case strings.HasPrefix(line, "rename from "):
			f.from, err = diffPath(strings.TrimPrefix(line, "rename from "))
		case strings.HasPrefix(line, "rename to "):
			renamed = true
			f.to, err = diffPath(strings.TrimPrefix(line, "rename to "))
		case strings.HasPrefix(line, "copy "):
			err = errors.New("copies are not made: copy_file does it")
		case strings.HasPrefix(line, "Binary files "), strings.HasPrefix(line, "GIT binary patch"):
			err = errors.New("only text is changed")
		default:
			return renamed, isNew, deleted, nil
		}
		if err != nil {
			return false, false, false, patchError(r.at+1, "%s: %w", quoted(line), err)
		}
	}
	return renamed, isNew, deleted, nil
}

// diffPaths are the paths of a file before and after, "" where there is none, without git's a/ and b/.
func diffPaths(old, to string) (from, after string, err error) {
	if from, err = diffPath(old); err != nil {
		return "", "", err
	}
	if after, err = diffPath(to); err != nil {
		return "", "", err
	}
	bareFrom, gitFrom := strings.CutPrefix(from, "a/")
	bareAfter, gitAfter := strings.CutPrefix(after, "b/")
	switch {
	case (gitFrom || from == "") && (gitAfter || after == ""):
		return bareFrom, bareAfter, nil
	case from != after && from != "" && after != "":
		return "", "", fmt.Errorf("%s and %s are different files: name one, or a/… and b/… to move it", quoted(from), quoted(after))
	}
	return from, after, nil
}

// diffPath is a path as it stands in a diff: perhaps quoted as in C, or with a time after it.
func diffPath(text string) (string, error) {
	text, _, _ = strings.Cut(text, "\t")
	if strings.HasPrefix(text, `"`) {
		path, err := strconv.Unquote(text)
		if err != nil {
			return "", fmt.Errorf("%s is not quoted as in git", quoted(text))
		}
		text = path
	}
	if text == nowhere {
		return "", nil
	}
	return text, nil
}

// atHeader reports whether the next line is the first of the next file. A line "-- x" that goes looks like one.
func (r *patchReader) atHeader(h hunk) bool {
	switch {
	case strings.HasPrefix(r.peek(), gitHeader):
		return true
	case !strings.HasPrefix(r.peek(), oldHeader), !strings.HasPrefix(r.ahead(1), newHeader):
		return false
	case h.oldLeft < 1 || h.newLeft < 1:
		return true
	default: // the hunk says that more lines come; it may have miscounted
		return strings.HasPrefix(r.ahead(2), "@@") && (h.oldLeft > 1 || h.newLeft > 1)
	}
}

// contentOfHunks makes what is added of the hunks of a new file.
func (f *filePatch) contentOfHunks() error {
	var b strings.Builder
	ended := true
	for _, h := range f.hunks {
		for _, l := range h.lines {
			if l.op != '+' {
				return patchError(h.line, "%s is new, but the hunk has lines that do not begin with +", f.to)
			}
			b.WriteString(l.text + "\n")
		}
		ended = h.ended == nil
	}
	f.added, f.hunks = b.String(), nil
	if !ended {
		f.added = strings.TrimSuffix(f.added, "\n")
	}
	return nil
}
