package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
)

// Summary is what there is to say of a session without its conversation.
type Summary struct {
	Header Header
	// SessionID is the present one, as in a State.
	SessionID string
	Settings  Settings
	// Messages is how many the conversation has.
	Messages uint64
}

// counted are the beginnings of records that Summarize need not decode.
var counted = [][]byte{messageBegins, []byte(`{"type":"partial",`), []byte(`{"type":"turn_end",`)}

// maxLine is how much of a line Summarize holds, in bytes. Of a longer message
// it sees the beginning; another record of that size is damage.
const maxLine = 8 << 20

// Summarize reads a session as Parse does, many times faster and in little
// memory, whatever its size: of messages it sees only that they are JSON. A
// session that has no header yet is an empty Summary. The errors are those of
// Parse, or of reading.
func Summarize(r io.ReadSeeker) (Summary, error) {
	s := &summarizer{}
	if _, err := replay(r, maxLine, s); err != nil {
		return Summary{}, err
	}
	return Summary{Header: s.state.Header, SessionID: s.state.SessionID, Settings: s.state.Settings, Messages: s.messages}, nil
}

// summarizer is the reader of Summarize. Its state has no messages.
type summarizer struct {
	state    State
	messages uint64
}

func (s *summarizer) begin() *State {
	*s = summarizer{}
	return &s.state
}

func (s *summarizer) decode(line []byte, whole, cut bool) (Record, error) {
	for i, beginning := range counted {
		if s.state.Empty() || !whole || !bytes.HasPrefix(line, beginning) { // a line without an end may be torn
			continue
		}
		if !cut && (!utf8.Valid(line) || !gjson.ValidBytes(line)) {
			return nil, &strict.Error{Problem: "is no JSON"}
		}
		if i == 0 {
			return Message{}, nil
		}
		return Unknown{}, nil
	}
	if cut {
		return nil, &strict.Error{Problem: fmt.Sprintf("has more than %d bytes", maxLine)}
	}
	return Decode(line)
}

func (s *summarizer) keep(Message) { s.messages++ }

func (s *summarizer) restore(r Record, c Checkpoint) {
	if _, ok := r.(Compaction); ok {
		s.messages++
	}
	if c.ResetID != "" {
		s.state.SessionID = c.ResetID
	}
	s.state.Settings = c.Settings
}

func (s *summarizer) take(r Record) error {
	if s.state.Empty() {
		return s.state.Apply(r)
	}
	switch r := r.(type) {
	case Message:
		s.messages++
	case Compaction:
		if r.Dropped > s.messages {
			return fmt.Errorf("compaction of %d messages, there are %d", r.Dropped, s.messages)
		}
		s.messages += 1 - r.Dropped
	case Undo:
		if r.Kept > s.messages {
			return fmt.Errorf("undo leaves %d messages, there are %d", r.Kept, s.messages)
		}
		s.messages = r.Kept
	case Reset:
		s.messages = 0
		return s.state.Apply(r)
	case Settings, Header:
		return s.state.Apply(r)
	default: // of no interest, and there may be many
	}
	return nil
}

// Renamed copies the size bytes of a session to dst under another header: the
// first line gives way to that of header, and what stands after the last newline
// is left out. It fails if the session does not begin with a whole header, and
// with the errors of reading and writing.
func Renamed(dst io.Writer, src io.ReaderAt, size int64, header Header) error {
	from, err := afterHeader(src, size)
	if err != nil {
		return err
	}
	line, err := Append(nil, header)
	if err != nil {
		return err
	}
	if _, err := dst.Write(append(line, '\n')); err != nil {
		return err
	}
	to, err := lastNewline(src, from, size)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, io.NewSectionReader(src, from, to-from))
	return err
}

// CheckHeader says why Renamed would refuse a session of that many bytes.
func CheckHeader(session io.ReaderAt, size int64) error {
	_, err := afterHeader(session, size)
	return err
}

// afterHeader is where the second line of a session begins.
func afterHeader(session io.ReaderAt, size int64) (int64, error) {
	first, length, whole, err := lines(io.NewSectionReader(session, 0, size), maxLine, size)()
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if !whole {
		return 0, &LineError{Line: 1, Err: ErrNoSession}
	}
	record, err := Decode(first)
	if err != nil {
		return 0, &LineError{Line: 1, Err: fmt.Errorf("%w: %w", ErrNoSession, err)}
	}
	if _, ok := record.(Header); !ok {
		return 0, &LineError{Line: 1, Err: errors.New("the header is missing")}
	}
	return int64(length) + 1, nil
}

// lastNewline is where the last line that is whole ends, of the bytes between
// from and to; from if none does.
func lastNewline(src io.ReaderAt, from, to int64) (int64, error) {
	block := make([]byte, 64<<10)
	for to > from {
		part := block[:min(int64(len(block)), to-from)]
		if n, err := src.ReadAt(part, to-int64(len(part))); n < len(part) {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return to - int64(len(part)-i-1), nil
		}
		to -= int64(len(part))
	}
	return from, nil
}
