package eventlog

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
		segments, pending := l.snapshot()
		if !readSegments(l.dir, segments, &after, yield) {
			return
		}
		for _, e := range pending {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

// Read gives what is on disk of a log that nobody has open, or of one that somebody
// has: events with a number above after, in order. It changes nothing there. A
// number that is left out is not kept any more; without a log there are none. An
// error ends the sequence.
func Read(dir string, after uint64) iter.Seq2[supervisor.Event, error] {
	return func(yield func(supervisor.Event, error) bool) {
		segments, err := list(dir)
		if err != nil {
			yield(supervisor.Event{}, fmt.Errorf("read event log: %w", err))
			return
		}
		segments = slices.DeleteFunc(segments, func(s segment) bool { return s.size < headerSize }) // the machine stopped as it was begun
		readSegments(dir, segments, &after, yield)
	}
}

// readSegments yields the events of segments beyond *after, which it moves on. It
// reports whether more is wanted.
func readSegments(dir string, segments []segment, after *uint64, yield func(supervisor.Event, error) bool) bool {
	for i, s := range segments {
		if i+1 < len(segments) && segments[i+1].first <= *after+1 {
			continue
		}
		more, err := readSegment(dir, s, after, yield)
		if err != nil {
			yield(supervisor.Event{}, fmt.Errorf("read event log: %w", err))
			return false
		}
		if !more {
			return false
		}
	}
	return true
}

// snapshot is what there is to read: nothing is being written meanwhile, so an
// event is on disk or waits.
func (l *Log) snapshot() ([]segment, []supervisor.Event) {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.segments), slices.Clone(l.pending)
}

// readSegment yields the events of one segment beyond *after, which it moves on.
// more is false if yield wants no more. A segment that went meanwhile, and the
// part of one that is damaged, are left out.
func readSegment(dir string, s segment, after *uint64, yield func(supervisor.Event, error) bool) (more bool, err error) {
	file, err := safefile.Open(s.path(dir), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	from, err := skip(file, s.size, *after)
	if err != nil {
		return false, err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, from, s.size-from), skipSize)
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
		seq, data, ok := parseLine(line[:len(line)-1])
		if !ok {
			return true, nil
		}
		if seq <= *after {
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

// skip finds a line of a segment before which there is no event above after, not
// far before the first such event. Numbers rise, so it halves what is left.
func skip(file io.ReaderAt, size int64, after uint64) (from int64, err error) {
	from = headerSize
	for end := size; end-from > skipSize; { // all lines from end on are above after, or damaged
		middle := from + (end-from)/2
		start, seq, ok, err := lineFrom(io.NewSectionReader(file, middle-1, size-middle+1), middle-1)
		if err != nil {
			return 0, err
		}
		if ok && seq <= after {
			from = start
		} else {
			end = middle
		}
	}
	return from, nil
}

// lineFrom finds the first line that begins after a newline in r, which is at an
// offset of its file. ok is false if there is none, or it is no event.
func lineFrom(r io.Reader, offset int64) (start int64, seq uint64, ok bool, err error) {
	in := bufio.NewReaderSize(r, 4<<10)
	for {
		part, err := in.ReadSlice('\n')
		offset += int64(len(part))
		if err == nil {
			break
		}
		if errors.Is(err, io.EOF) {
			return 0, 0, false, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return 0, 0, false, err
		}
	}
	head, err := in.Peek(len(lineHead) + 20 + len(lineMiddle))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, false, err
	}
	rest, ok := bytes.CutPrefix(head, []byte(lineHead))
	number, _, found := bytes.Cut(rest, []byte(lineMiddle))
	if !ok || !found {
		return 0, 0, false, nil
	}
	seq, ok = parseNumber(number)
	return offset, seq, ok, nil
}
