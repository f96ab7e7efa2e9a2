package strict

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Place is the line and the column, both from 1, at which err, which may wrap an
// *Error, is wrong with data:
// the name of a member, the beginning of an element, or where data stops being
// JSON. A member that is missing is at the object that lacks it. The result is 0, 0
// if err names no place.
func Place(data []byte, err error) (line, column int) {
	at := -1
	if e, ok := errors.AsType[*Error](err); ok {
		at = offsetOf(data, e.Path)
	} else if Valid(data) != nil {
		at = brokenAt(data)
	}
	if at < 0 || at > len(data) {
		return 0, 0
	}
	before := data[:at]
	return 1 + bytes.Count(before, []byte{'\n'}), at - bytes.LastIndexByte(before, '\n')
}

// Without is data, which is valid, without the member that err is about: spaces stand in its place,
// so that what is left is where it was. An element of a list goes with its list. It reports false if
// err is about no member. By it all errors of a text are found, one after the other.
func Without(data []byte, err error) ([]byte, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return nil, false
	}
	path, _, _ := strings.Cut(e.Path, "[")
	s := search{data: data, path: path, dec: jsontext.NewDecoder(bytes.NewReader(data))}
	s.value("")
	if s.best == 0 {
		return nil, false
	}
	begin, end := s.found, s.end
	rest := bytes.TrimLeft(data[end:], " \t\r\n")
	if before := bytes.TrimRight(data[:begin], " \t\r\n"); len(rest) > 0 && rest[0] == ',' {
		end = len(data) - len(rest) + 1
	} else if len(before) > 0 && before[len(before)-1] == ',' {
		begin = len(before) - 1
	}
	left := bytes.Clone(data)
	for i := begin; i < end; i++ {
		if left[i] != '\n' {
			left[i] = ' '
		}
	}
	return left, true
}

// brokenAt is where data, which is not valid, stops being JSON.
func brokenAt(data []byte) int {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	_, err := dec.ReadValue()
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return int(s.ByteOffset)
	}
	return next(data, int(dec.InputOffset())) // something stands behind the value
}

// next is where the next token after at begins.
func next(data []byte, at int) int {
	rest := bytes.TrimLeft(data[at:], " \t\r\n:,")
	return len(data) - len(rest)
}

// offsetOf is where the member or element of that path begins in data, which is
// valid; else the longest part of the path that is there.
func offsetOf(data []byte, path string) int {
	s := search{data: data, path: path, dec: jsontext.NewDecoder(bytes.NewReader(data)), found: next(data, 0)}
	s.value("")
	return s.found
}

// search walks a text and remembers the place that comes nearest to a path.
type search struct {
	data  []byte
	path  string
	dec   *jsontext.Decoder
	found int // offset of what best is
	end   int // where that ends
	best  int // bytes of path that lead there
}

// note remembers that what has the path here begins at the first token after offset, and walks it.
func (s *search) note(here string, offset int64) {
	rest, leads := strings.CutPrefix(s.path, here)
	if leads && len(here) > s.best && (rest == "" || rest[0] == '.' || rest[0] == '[') {
		s.found, s.best = next(s.data, int(offset)), len(here)
		defer func() {
			if s.best == len(here) {
				s.end = int(s.dec.InputOffset())
			}
		}()
	}
	s.value(here)
}

// value walks the next value, which has the path here.
func (s *search) value(here string) {
	switch s.dec.PeekKind() {
	case '{':
		_, _ = s.dec.ReadToken()
		for s.dec.PeekKind() != '}' {
			before := s.dec.InputOffset()
			name, err := s.dec.ReadToken()
			if err != nil {
				return // not of a text that is valid
			}
			path := name.String()
			if here != "" {
				path = here + "." + path
			}
			s.note(path, before)
		}
		_, _ = s.dec.ReadToken()
	case '[':
		_, _ = s.dec.ReadToken()
		for i := 0; s.dec.PeekKind() != ']'; i++ {
			path := here + "[" + strconv.Itoa(i) + "]"
			s.note(path, s.dec.InputOffset())
		}
		_, _ = s.dec.ReadToken()
	default:
		_ = s.dec.SkipValue()
	}
}
