package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A segment begins with a header of fixed size, so that it can be written over
// in place, which needs no room on a full disk:
//
//	{"events":1,"reserved":1048576                                 }
//
// Reserved is a number that no event beyond has, whether it was written or not.
// That of the last segment holds. The other lines are
//
//	{"seq":17,"event":{"type":"turn_start","turn_id":"1"}}
const (
	headerSize = 64
	headerHead = `{"events":1,"reserved":`
	lineHead   = `{"seq":`
	lineMiddle = `,"event":`
	suffix     = ".jsonl"
)

// segment is one file of a log.
type segment struct {
	first uint64 // no event in it has a lower number
	size  int64  // bytes of whole lines, the header included
}

func (s segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", s.first, suffix))
}

func header(reserved uint64) []byte {
	line := strconv.AppendUint(append(make([]byte, 0, headerSize), headerHead...), reserved, 10)
	for len(line) < headerSize-2 {
		line = append(line, ' ')
	}
	return append(line, '}', '\n')
}

// parseHeader reads the header that data begins with.
func parseHeader(data []byte) (reserved uint64, ok bool) {
	if len(data) < headerSize {
		return 0, false
	}
	number, ok := bytes.CutPrefix(data[:headerSize], []byte(headerHead))
	if !ok {
		return 0, false
	}
	number, ok = bytes.CutSuffix(number, []byte("}\n"))
	if !ok {
		return 0, false
	}
	return parseNumber(bytes.TrimRight(number, " "))
}

func appendLine(dst []byte, seq uint64, data []byte) []byte {
	dst = strconv.AppendUint(append(dst, lineHead...), seq, 10)
	dst = append(append(dst, lineMiddle...), data...)
	return append(dst, '}', '\n')
}

// parseLine reads one line, newline excluded. Data is a part of line; that it
// is JSON is not checked.
func parseLine(line []byte) (seq uint64, data []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(lineHead))
	if !ok {
		return 0, nil, false
	}
	number, data, ok := bytes.Cut(rest, []byte(lineMiddle))
	if !ok || len(number) > 20 {
		return 0, nil, false
	}
	data, ok = bytes.CutSuffix(data, []byte("}"))
	if !ok || len(data) == 0 || data[0] != '{' {
		return 0, nil, false
	}
	seq, ok = parseNumber(number)
	return seq, data, ok && seq > 0
}

// parseNumber reads what strconv.AppendUint writes.
func parseNumber(digits []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return n, err == nil && (len(digits) == 1 || digits[0] != '0')
}

// scan reads a whole segment. good is how much of data is whole lines with
// rising numbers from first on, at least the header; last is the last number, 0
// if there is none. What follows good is a torn tail. ok is false if data has no
// header.
func scan(data []byte, first uint64) (reserved, last uint64, good int, ok bool) {
	reserved, ok = parseHeader(data)
	if !ok {
		return 0, 0, 0, false
	}
	good = headerSize
	for good < len(data) {
		line, _, whole := bytes.Cut(data[good:], []byte{'\n'})
		seq, event, ok := parseLine(line)
		if !whole || !ok || seq <= last || seq < first {
			break
		}
		next := good + len(line) + 1
		// The machine may have stopped in the middle of the last write.
		if next >= len(data) && !jsontext.Value(event).IsValid() {
			break
		}
		last, good = seq, next
	}
	return reserved, last, good, true
}

// list finds the segments in dir, oldest first; none if there is no directory.
func list(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, entry := range entries {
		digits, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok || len(digits) != 20 || !entry.Type().IsRegular() {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, segment{first: first, size: info.Size()})
	}
	slices.SortFunc(all, func(a, b segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	return all, nil
}
