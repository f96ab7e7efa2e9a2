package segmentlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// Read gives the events with a number above after, in order, up to the last
// that was appended when Read is ranged over, those that wait to be written
// included. A number that is left out is not kept any more, which may have come
// about while it was read. An error ends the sequence. Any number may read at once, and while events are appended.
func (l *Log) Read(after uint64) iter.Seq2[supervisor.Event, error] {
	return func(yield func(supervisor.Event, error) bool) {
		segments, pending := l.present()
		for e, err := range ReadSegments(segments, after) {
			if !yield(e, err) || err != nil {
				return
			}
			after = e.Seq
		}
		for _, e := range pending {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

// Segments are those of the log in dir, which somebody may have open, oldest first. Errors are
// those of Open.
func Segments(dir string) ([]Segment, error) {
	found, _, err := segments(dir)
	return found, err
}

// ReadSegments gives the events above a number in segments, each of which begins where the one before
// ends, in order. It changes nothing there. A number that is left out is not kept any more. An error
// ends the sequence.
func ReadSegments(segments []Segment, after uint64) iter.Seq2[supervisor.Event, error] {
	return func(yield func(supervisor.Event, error) bool) {
		for i, s := range segments {
			if i+1 < len(segments) && segments[i+1].First <= after+1 {
				continue
			}
			more, err := readSegment(s, &after, yield)
			if err != nil {
				yield(supervisor.Event{}, fmt.Errorf("read event log: %w", err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// present is what there is to read: nothing is being written meanwhile, so an
// event is on disk or waits.
func (l *Log) present() ([]Segment, []supervisor.Event) {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.segments), slices.Clone(l.pending)
}

// readSegment yields the events of one segment beyond *after, which it moves on.
// more is false if yield wants no more. A segment that went meanwhile, and the
// part of one that is damaged, are left out.
func readSegment(s Segment, after *uint64, yield func(supervisor.Event, error) bool) (more bool, err error) {
	file, err := safefile.Open(s.Path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	from, err := skip(file, s, *after)
	if err != nil {
		return false, err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, from, s.Size-from), skipSize)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			head := bytes.Clone(line)
			line, err = in.ReadBytes('\n')
			line = append(head, line...)
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		seq, data, ok := parseEvent(line[:len(line)-1])
		if !ok || seq <= *after { // of another kind, perhaps
			continue
		}
		*after = seq
		data = bytes.Clone(data)
		if !yield(supervisor.Event{Seq: seq, Type: gjson.GetBytes(data, "type").String(), Data: data}, nil) {
			return false, nil
		}
	}
}

// skipSize is how much of a segment is rather read than skipped, in bytes.
const skipSize = 16 << 10

// skip finds a place in a segment before which there is no event above after, not
// far before the first such event. Numbers rise, so it halves what is left.
func skip(file io.ReaderAt, s Segment, after uint64) (from int64, err error) {
	from = s.From
	for end := s.Size; end-from > skipSize; { // all events that begin from end on are above after
		middle := from + (end-from)/2
		start, seq, err := eventFrom(io.NewSectionReader(file, middle-1, end-middle+1), middle-1)
		if err != nil {
			return 0, err
		}
		if seq > 0 && seq <= after {
			from = start
		} else {
			end = middle
		}
	}
	return from, nil
}

// eventFrom finds the first event that begins after a newline in r, which is at an
// offset of its file. seq is 0 if there is none.
func eventFrom(r io.Reader, offset int64) (start int64, seq uint64, err error) {
	in := bufio.NewReaderSize(r, 4<<10)
	for begins := false; ; {
		part, err := in.ReadSlice('\n')
		if begins {
			rest, ok := bytes.CutPrefix(part, []byte(eventHead))
			digits, _, found := bytes.Cut(rest, []byte(eventMiddle))
			if seq, failed := strconv.ParseUint(string(digits), 10, 64); ok && found && failed == nil {
				return offset, seq, nil
			}
		}
		offset += int64(len(part))
		begins = err == nil
		if errors.Is(err, io.EOF) {
			return 0, 0, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, 0, err
		}
	}
}
