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

// Without is data, which is valid but for members that stand twice, without the member that err is about:
// spaces stand in its place, so that what is left is where it was. An element of a list goes with its list.
// It reports false if err is about no member. By it all errors of a text are found, one after the other.
func Without(data []byte, err error) ([]byte, bool) {
	var s search
	e, named := errors.AsType[*Error](err)
	switch {
	case named && e.Path != "":
		s = searchFor(data, e.Path)
		for s.list != "" {
			s = searchFor(data, s.list)
		}
	case !named && errors.Is(err, ErrDuplicate):
		s = search{data: data, offset: brokenAt(data)}
		s.walk()
	}
	if s.here == "" {
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
func offsetOf(data []byte, path string) int { return searchFor(data, path).found }

// search walks a text and remembers the member or element that comes nearest to a path, or the member
// whose name stands at an offset.
type search struct {
	data   []byte
	path   string // "" for the offset
	offset int
	dec    *jsontext.Decoder
	found  int    // offset of what was found: of the whole text, where nothing was
	end    int    // where that ends
	here   string // its path; "" for the whole text
	list   string // the path of the list of which it is an element; "" for a member
}

// searchFor is the search for a path in data, which is valid.
func searchFor(data []byte, path string) search {
	s := search{data: data, path: path, found: next(data, 0)}
	s.walk()
	return s
}

// walk searches.
func (s *search) walk() {
	s.dec = jsontext.NewDecoder(bytes.NewReader(s.data), jsontext.AllowDuplicateNames(true))
	s.value("")
}

// fits reports whether what has the path here, and begins at offset, is what is searched for, or nearer to it.
func (s *search) fits(here string, offset int) bool {
	if s.path == "" {
		return offset == s.offset
	}
	rest, leads := strings.CutPrefix(s.path, here)
	return leads && len(here) > len(s.here) && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// note remembers that what has the path here, in a list or not, begins at the first token after offset, and walks it.
func (s *search) note(here, list string, offset int64) {
	if begin := next(s.data, int(offset)); s.fits(here, begin) {
		s.found, s.here, s.list = begin, here, list
		defer func() {
			if s.here == here {
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
				return // the text is not valid
			}
			path := name.String()
			if here != "" {
				path = here + "." + path
			}
			s.note(path, "", before)
		}
		_, _ = s.dec.ReadToken()
	case '[':
		_, _ = s.dec.ReadToken()
		for i := 0; s.dec.PeekKind() != ']'; i++ {
			if s.dec.PeekKind() == jsontext.KindInvalid {
				return // the text is not valid
			}
			path := here + "[" + strconv.Itoa(i) + "]"
			s.note(path, here, s.dec.InputOffset())
		}
		_, _ = s.dec.ReadToken()
	default:
		_ = s.dec.SkipValue()
	}
}
