package protocol

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
)

// ValidEvent reports why the members of an event's line, of any type, can be read in
// two ways: what [strict.Valid] says of it, or that two members of the frame, or of its
// member event, differ in case alone, which readers that ignore case take for one. Objects
// deeper down hold names that others chose, as a tool's input does.
func ValidEvent(line []byte) error {
	if err := strict.Valid(line); err != nil {
		return err
	}
	return distinct(line)
}

// distinct is the second half of ValidEvent, for a line that is valid.
func distinct(line []byte) error {
	if plainNames(line) {
		return nil
	}
	return compareNames(line)
}

func compareNames(line []byte) error {
	frame := gjson.ParseBytes(line)
	if err := checkCase(frame); err != nil {
		return err
	}
	return checkCase(frame.Get("event"))
}

// plainNames reports whether the members that distinct looks at differ for certain, as
// those of ordinary frames do: few names in ASCII without escapes, with hashes that
// differ whatever the case. It allocates nothing.
func plainNames(line []byte) bool {
	var (
		seen        [32]uint64 // hashes of the names of the frame; from first on, of its event
		n, first    int
		depth       int
		name, event bool // the next string is a name; the last name of the frame was event
	)
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			if depth++; depth == 2 {
				first = n
			}
			name = true
		case '}', ']':
			if depth--; depth == 1 {
				n = first
			}
		case ',':
			name = true
		case ':':
			name = false
		case '"':
			end := closingQuote(line, i+1)
			if end < 0 {
				return false
			}
			if name && (depth == 1 || depth == 2 && event) {
				hash, ok := foldedHash(line[i+1 : end])
				names := seen[:n]
				if depth == 2 {
					names = seen[first:n]
				}
				if !ok || n == len(seen) || slices.Contains(names, hash) {
					return false
				}
				seen[n] = hash
				n++
				event = event && depth == 2 || depth == 1 && string(line[i+1:end]) == "event"
			}
			i = end
		}
	}
	return true
}

// closingQuote is where the string ends that begins at from; -1 if it does not.
func closingQuote(line []byte, from int) int {
	for at := from; ; at++ {
		next := bytes.IndexByte(line[at:], '"')
		if next < 0 {
			return -1
		}
		at += next
		escapes := at
		for escapes > from && line[escapes-1] == '\\' {
			escapes--
		}
		if (at-escapes)%2 == 0 {
			return at
		}
	}
}

// foldedHash hashes a name (FNV-1a) such that two that differ in case alone have the same
// hash; false where a name has an escape or a letter that is not ASCII.
func foldedHash(name []byte) (uint64, bool) {
	hash := uint64(14695981039346656037)
	for _, c := range name {
		if c == '\\' || c >= utf8.RuneSelf {
			return 0, false
		}
		hash = (hash ^ uint64(c|0x20)) * 1099511628211 // 0x20 makes a letter small
	}
	return hash, true
}

// checkCase reports two members of a valid object that differ in case alone; nil for
// a value that is no object.
func checkCase(object gjson.Result) (err error) {
	if !object.IsObject() {
		return nil
	}
	seen := make(map[string]string, 8)
	object.ForEach(func(key, _ gjson.Result) bool {
		folded := strings.ToLower(strings.ToUpper(key.Str)) // as strings.EqualFold compares
		if first, twice := seen[folded]; twice {
			err = fmt.Errorf("members %.64q and %.64q differ in case alone", first, key.Str)
		}
		seen[folded] = key.Str
		return err == nil
	})
	return err
}
