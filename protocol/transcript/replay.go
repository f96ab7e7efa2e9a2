package transcript

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// How the lines begin at which reading can begin, and those of messages.
var (
	checkpoints   = [][]byte{[]byte(`{"type":"compaction",`), []byte(`{"type":"reset",`)}
	messageBegins = []byte(`{"type":"message",`)
)

// entry is where reading can begin.
type entry struct {
	at         int64 // where the line of the checkpoint begins
	from       int64 // where that of the first message begins that it kept; at if it kept none
	record     Record
	checkpoint *Checkpoint // of record
}

// errNotKept says that there are other messages before a checkpoint than it kept.
var errNotKept = errors.New("the messages before the checkpoint are others")

// reader is what becomes of a session that is read: a conversation, or what there is to say
// of one.
type reader interface {
	// begin forgets everything and returns the state that the header goes to.
	begin() *State
	// decode decodes a line, whose end may be cut off.
	decode(line []byte, whole, cut bool) (Record, error)
	// keep adds a message that is before the checkpoint, and restore takes the checkpoint.
	keep(Message)
	restore(Record, Checkpoint)
	// take adds a record after the checkpoint.
	take(Record) error
}

// replay reads a session from its last checkpoint, or from its beginning if it has none. The
// result is that of Parse.
func replay(r io.ReadSeeker, limit int, to reader) (good int64, err error) {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	e, err := lastEntry(r, size)
	if err != nil {
		return 0, err
	}
	if e != nil {
		good, err := e.replay(r, size, limit, to)
		if !errors.Is(err, errNotKept) {
			return good, err
		}
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return to.begin().walk(lines(r, limit, size), func(line []byte, whole, cut bool) error {
		record, err := to.decode(line, whole, cut)
		if err != nil {
			return err
		}
		return to.take(record)
	})
}

// replay reads a session from e. The error is errNotKept if it cannot begin there.
func (e *entry) replay(r io.ReadSeeker, size int64, limit int, to reader) (good int64, err error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	first, _, whole, err := lines(r, maxLine, size)()
	if err != nil {
		return 0, err
	}
	state := to.begin()
	if header, err := Decode(first); err != nil || !whole || state.Apply(header) != nil {
		return 0, errNotKept // reading from the beginning says what is wrong
	}
	if _, err := r.Seek(e.from, io.SeekStart); err != nil {
		return 0, err
	}
	next, ends, begins := lines(r, limit, size-e.from), e.from, e.from
	counted := func() (line []byte, size int, whole bool, err error) {
		line, size, whole, err = next()
		begins, ends = ends, ends+int64(size)+1
		return line, size, whole, err
	}
	kept := uint64(0)
	good, err = state.walk(counted, func(line []byte, whole, cut bool) error {
		if begins == e.at {
			if kept != e.checkpoint.Kept {
				return errNotKept
			}
			to.restore(e.record, e.checkpoint.clone())
			return nil
		}
		record, err := to.decode(line, whole, cut)
		if err != nil {
			return err
		}
		if begins > e.at {
			return to.take(record)
		}
		if m, ok := record.(Message); ok {
			kept++
			to.keep(m)
		}
		return nil
	})
	if damage, ok := errors.AsType[*LineError](err); ok && !errors.Is(err, errNotKept) {
		before, err := countLines(r, e.from)
		if err != nil {
			return 0, err
		}
		damage.Line += before
	}
	return e.from + good, err
}

// lastEntry finds the last checkpoint of a session of that many bytes; nil if reading has to
// begin at the beginning.
func lastEntry(r io.ReadSeeker, size int64) (*entry, error) {
	for at, err := range backwards(r, size, checkpoints...) {
		if err != nil {
			return nil, err
		}
		if _, err := r.Seek(at, io.SeekStart); err != nil {
			return nil, err
		}
		line, length, whole, err := lines(r, maxLine, size-at)()
		if err != nil {
			return nil, err
		}
		if !whole { // it may be torn
			continue
		}
		if length > len(line) {
			return nil, nil
		}
		record, err := Decode(line)
		if err != nil {
			return nil, nil // the beginning says which line it is
		}
		e := &entry{at: at, from: at, record: record}
		switch r := record.(type) {
		case Compaction:
			e.checkpoint = r.Checkpoint
		case Reset:
			e.checkpoint = r.Checkpoint
		default:
		}
		if e.checkpoint == nil { // an earlier program wrote it
			continue
		}
		return e, e.keep(r)
	}
	return nil, nil
}

// keep finds the first of the messages that e kept. Where there are fewer, from is the
// first of all.
func (e *entry) keep(r io.ReadSeeker) error {
	if e.checkpoint.Kept == 0 {
		return nil
	}
	left := e.checkpoint.Kept
	for at, err := range backwards(r, e.at, messageBegins) {
		if err != nil {
			return err
		}
		e.from = at
		if left--; left == 0 {
			break
		}
	}
	return nil
}

// backwards gives where the lines before end begin that begin in one of these ways, the
// last one first. It does not look at the first line of all.
func backwards(r io.ReadSeeker, end int64, begins ...[]byte) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		longest := 0
		for _, b := range begins {
			longest = max(longest, len(b)+1)
		}
		buffer := make([]byte, min(end, int64(blockSize+longest)))
		for hi := end; hi > 0; {
			lo := max(hi-blockSize, 0)
			block := buffer[:min(hi+int64(longest), end)-lo] // with the beginning of a line whose newline is before hi
			if _, err := r.Seek(lo, io.SeekStart); err != nil {
				yield(0, err)
				return
			}
			if _, err := io.ReadFull(r, block); err != nil {
				yield(0, err)
				return
			}
			var found []int64
			for _, b := range begins {
				found = appendStarts(found, block, lo, hi, b)
			}
			slices.Sort(found)
			for _, at := range slices.Backward(found) {
				if !yield(at, nil) {
					return
				}
			}
			hi = lo
		}
	}
}

// blockSize is how much is read at once, in bytes.
const blockSize = 64 << 10

// appendStarts appends where the lines of block begin that begin so and whose newline before
// them is before hi. block is what the file has from lo on.
func appendStarts(found []int64, block []byte, lo, hi int64, begins []byte) []int64 {
	pattern := append([]byte{'\n'}, begins...)
	for from := 0; ; {
		i := bytes.Index(block[from:], pattern)
		if i < 0 || lo+int64(from+i) >= hi {
			return found
		}
		found = append(found, lo+int64(from+i)+1)
		from += i + 1
	}
}

// countLines is how many lines end before the byte at end.
func countLines(r io.ReadSeeker, end int64) (n int, err error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	block := make([]byte, blockSize)
	for part := io.LimitReader(r, end); ; {
		read, err := part.Read(block)
		n += bytes.Count(block[:read], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("count the lines: %w", err)
		}
	}
}

// source gives a session line by line, newline excluded; whole says that there
// was one. A line of more bytes than it has is cut off. The error is io.EOF after
// the last line, or that of reading.
type source func() (line []byte, size int, whole bool, err error)

// walk gives each line to add, with whether it is whole, which a last one without
// a newline may not be, and whether it is cut off. add adds it to s, and walk says
// how many bytes are sound, as Parse does.
func (s *State) walk(next source, add func(line []byte, whole, cut bool) error) (good int64, err error) {
	for number := 1; ; number++ {
		line, size, whole, err := next()
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return 0, err
		}
		cut := size > len(line)
		if len(bytes.TrimSpace(line)) > 0 || !whole {
			if cut && !whole && !s.Empty() {
				return good, nil // nobody needs to know what it would have been
			}
			err := add(line, whole, cut)
			if err != nil && !whole && s.torn(line, err) {
				return good, nil
			}
			if err != nil && s.Empty() && !bytes.HasPrefix(line, []byte(begun)) {
				err = fmt.Errorf("%w: %w", ErrNoSession, err)
			}
			if err != nil {
				return 0, &LineError{Line: number, Err: err}
			}
		}
		good += int64(size)
		if whole {
			good++
		}
	}
}

// torn reports whether tail, which could not be read because of err, is what an
// unfinished write left behind s.
func (s *State) torn(tail []byte, err error) bool {
	if _, later := errors.AsType[*VersionError](err); later {
		return false
	}
	tail = bytes.TrimRight(tail, "\x00")
	return !s.Empty() || bytes.HasPrefix(tail, []byte(begun)) || bytes.HasPrefix([]byte(begun), tail)
}

// lines reads r, of which there are about so many bytes, line by line, at most limit bytes of
// each. A line is valid until the next is read.
func lines(r io.Reader, limit int, bytes int64) source {
	b := bufio.NewReaderSize(r, int(min(bytes, blockSize)))
	var held []byte // of a line that is longer than the reader's buffer
	return func() (line []byte, size int, whole bool, err error) {
		held = held[:0]
		for {
			piece, err := b.ReadSlice('\n')
			if whole = err == nil; whole {
				piece = piece[:len(piece)-1]
			}
			size += len(piece)
			if whole && size == len(piece) {
				return piece, size, true, nil
			}
			held = append(held, piece[:min(len(piece), limit-len(held))]...)
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
			case err != nil && (size == 0 || !errors.Is(err, io.EOF)):
				return nil, 0, false, err
			default:
				return held, size, whole, nil
			}
		}
	}
}
