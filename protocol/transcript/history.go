package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"nexus.internal/protocol"
)

// History is where the messages of a session stand that were said since its conversation began,
// those that gave way to summaries included, and no summaries. What was undone is not there.
type History struct {
	session io.ReaderAt
	all     []historyMessage
	turn    int   // where the open turn begins, by its place in all; -1 if that is not known
	current []int // the messages of the conversation, by their place in all; fromSummary for a summary
}

// historyMessage is the line of a message, newline excluded.
type historyMessage struct {
	at      int64
	size    int
	leftOut bool
}

// fromSummary stands for a summary in the conversation.
const fromSummary = -1

var (
	turnEndBegins = []byte(`{"type":"turn_end",`)
	saysLeftOut   = []byte(`"left_out":true`)
	userBegins    = []byte(`{"type":"message","message":{"role":"user",`)
)

// ReadHistory reads the first size bytes of a session, as a whole, in memory of some bytes for each message. The errors
// are those of Parse, but what is damaged and is no record of the conversation is passed over.
func ReadHistory(session io.ReaderAt, size int64) (*History, error) {
	h := &History{session: session, turn: -1}
	next, at := lines(io.NewSectionReader(session, 0, size), maxLine, size), int64(0)
	for number := 1; ; number++ {
		line, length, whole, err := next()
		if errors.Is(err, io.EOF) || err == nil && !whole { // a rest that may be torn
			return h, nil
		}
		if err == nil {
			err = h.take(line, at, length)
		}
		if err != nil {
			return nil, &LineError{Line: number, Err: err}
		}
		at += int64(length) + 1
	}
}

// take adds one line.
func (h *History) take(line []byte, at int64, length int) error {
	switch {
	case bytes.HasPrefix(line, messageBegins):
		h.add(at, length, bytes.HasPrefix(line, userBegins))
		return nil
	case bytes.HasPrefix(line, turnEndBegins) && !bytes.Contains(line, saysLeftOut):
		h.turn = -1
		return nil
	case length > len(line):
		return nil
	}
	record, err := Decode(line)
	if err != nil {
		return err
	}
	switch r := record.(type) {
	case Message: // written by another program
		h.add(at, length, r.Message.Role == protocol.RoleUser)
	case TurnEnd:
		for i := h.turn; r.LeftOut && i >= 0 && i < len(h.all); i++ {
			h.all[i].leftOut = true
		}
		h.turn = -1
	case Compaction:
		if r.Dropped > uint64(len(h.current)) {
			return fmt.Errorf("compaction of %d messages, there are %d", r.Dropped, len(h.current))
		}
		if h.current = append([]int{fromSummary}, h.current[r.Dropped:]...); !slices.Contains(h.current, h.turn) {
			h.turn = -1
		}
	case Undo:
		if r.Kept > uint64(len(h.current)) {
			return fmt.Errorf("undo leaves %d messages, there are %d", r.Kept, len(h.current))
		}
		h.undo(int(r.Kept))
	case Reset:
		h.all, h.current, h.turn = nil, nil, -1
	default:
	}
	return nil
}

func (h *History) add(at int64, length int, opens bool) {
	if opens {
		h.turn = len(h.all)
	}
	h.current = append(h.current, len(h.all))
	h.all = append(h.all, historyMessage{at: at, size: length})
}

// undo leaves the first kept messages of the conversation. With a summary goes what it stands for.
func (h *History) undo(kept int) {
	h.turn = -1
	if kept == len(h.current) {
		return
	}
	first := h.current[kept]
	h.current = h.current[:kept]
	if first == fromSummary {
		first = 0
	}
	h.all = h.all[:first]
}

// Len is the number of messages.
func (h *History) Len() int { return len(h.all) }

// Message reads the nth message.
func (h *History) Message(n int) (protocol.Message, error) {
	line := make([]byte, h.all[n].size)
	if _, err := h.session.ReadAt(line, h.all[n].at); err != nil {
		return protocol.Message{}, fmt.Errorf("read message %d: %w", n, err)
	}
	record, err := Decode(line)
	if err != nil {
		return protocol.Message{}, fmt.Errorf("read message %d: %w", n, err)
	}
	m, ok := record.(Message)
	if !ok {
		return protocol.Message{}, fmt.Errorf("read message %d: it has changed", n)
	}
	m.Message.LeftOut = h.all[n].leftOut
	return m.Message, nil
}
