package transcript

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"nexus.internal/protocol"
)

// State is what a session amounts to.
type State struct {
	Header Header
	// SessionID is the present one: the header's, or that of the last Reset.
	SessionID string
	Messages  []protocol.Message
	Checkpoint

	summaries uint64 // of Messages, at their beginning: no message records
	undone    bool   // there may be others than those of Messages among as many last message records
	since     uint64 // message records since then
	text      []byte // of the pieces since the last whole message
	thinking  []byte
}

// LineError says which line of a session is damaged.
type LineError struct {
	Line int // the first is 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// ErrNoSession says that a file is not a session, nor the beginning of one.
var ErrNoSession = errors.New("this does not begin as a session does")

// begun is how every header begins.
const begun = `{"type":"session","version":`

// Parse replays a session from its last checkpoint, in the memory that the conversation
// since then needs. What stands before the checkpoint is not read, but for the header and
// the messages that the checkpoint kept. The first
// good bytes are whole, sound lines, the last of them perhaps without its newline; what
// follows is a torn tail, which the caller cuts off. Only what stands after the last newline can be one: a record
// and its newline are written as one. Where no header stands before it, it is
// one only if it is the beginning of a header, or zeros, as a power cut leaves
// them. All else that cannot be read is a *LineError, which wraps ErrNoSession
// where there is no header, or that of reading. A session with no whole line is an empty State.
func Parse(r io.ReadSeeker) (state *State, good int64, err error) {
	state = &State{}
	good, err = replay(r, math.MaxInt, parser{state})
	if err != nil {
		return nil, 0, err
	}
	return state, good, nil
}

// parser is the reader of Parse.
type parser struct{ *State }

func (p parser) begin() *State {
	*p.State = State{}
	return p.State
}

func (p parser) decode(line []byte, _, _ bool) (Record, error) { return Decode(line) }

func (p parser) keep(m Message) { p.Messages = append(p.Messages, m.Message) }

func (p parser) take(r Record) error { return p.Apply(r) }

func (p parser) restore(r Record, c Checkpoint) {
	if r, ok := r.(Compaction); ok {
		p.Messages, p.summaries = slices.Insert(p.Messages, 0, r.Summary), 1
	}
	if c.ResetID != "" {
		p.SessionID = c.ResetID
	}
	for _, span := range c.LeftOut {
		p.leaveOut(span)
	}
	c.Kept, c.LeftOut = 0, nil
	p.Checkpoint = c
}

// Empty reports whether not even a header was found.
func (s *State) Empty() bool { return s.Header.Version == 0 }

// Apply adds one record. It fails, and changes nothing, on a record that cannot
// stand where it does.
func (s *State) Apply(r Record) error {
	if header, ok := r.(Header); ok != s.Empty() {
		if ok {
			return errors.New("a second header")
		}
		return errors.New("the header is missing")
	} else if ok {
		s.Header, s.SessionID = header, header.SessionID
		return nil
	}
	switch r := r.(type) {
	case Message:
		if r.Message.Role == protocol.RoleAssistant {
			s.text, s.thinking = nil, nil
		}
		s.Messages = append(s.Messages, r.Message)
		if s.undone {
			s.since++
		}
	case Partial:
		s.text = append(s.text, r.Text...)
		s.thinking = append(s.thinking, r.Thinking...)
	case TurnEnd:
		s.text, s.thinking = nil, nil
		if turn := s.openTurn(); r.LeftOut && turn != noTurn {
			s.leaveOut(Span{turn, uint64(len(s.Messages))})
		}
	case Compaction:
		if r.Dropped > uint64(len(s.Messages)) {
			return fmt.Errorf("compaction of %d messages, there are %d", r.Dropped, len(s.Messages))
		}
		s.Messages = slices.Concat([]protocol.Message{r.Summary}, s.Messages[r.Dropped:])
		s.summaries = 1 + s.summaries - min(s.summaries, r.Dropped)
		if uint64(len(s.Messages))-1 <= s.since {
			s.undone, s.since = false, 0 // the last message records are those that are kept
		}
	case Undo:
		if r.Kept > uint64(len(s.Messages)) {
			return fmt.Errorf("undo leaves %d messages, there are %d", r.Kept, len(s.Messages))
		}
		s.Messages, s.text, s.thinking = s.Messages[:r.Kept], nil, nil
		s.summaries, s.undone, s.since = min(s.summaries, r.Kept), true, 0
	case Reset:
		*s = State{Header: s.Header, SessionID: r.SessionID, Checkpoint: s.Checkpoint}
	case Settings, Allowance, Revocation, Note, Unknown, Header:
	}
	s.apply(r)
	return nil
}

// openTurn is where the open turn begins; noTurn if there is none, or its beginning is in a summary.
func (s *State) openTurn() uint64 {
	for i := len(s.Messages) - 1; s.Open != nil && i >= int(s.summaries); i-- {
		if s.Messages[i].Role == protocol.RoleUser {
			return uint64(i)
		}
	}
	return noTurn
}

// leaveOut marks messages.
func (s *State) leaveOut(span Span) {
	for i := span.From; i < min(span.To, uint64(len(s.Messages))); i++ {
		s.Messages[i].LeftOut = true
	}
}

// leftOut are the messages that are marked.
func (s *State) leftOut() (spans []Span) {
	for i, m := range s.Messages {
		at, last := uint64(i), len(spans)-1
		switch {
		case !m.LeftOut:
		case last >= 0 && spans[last].To == at:
			spans[last].To++
		default:
			spans = append(spans, Span{at, at + 1})
		}
	}
	return spans
}

// Repair closes a turn that the end of its process cut off: calls without a
// result get one that says so, the pieces of the unfinished answer become a
// message that is marked interrupted, and the turn gets its end. It applies
// the records to s and returns them for the file; nil if no turn is open.
func (s *State) Repair(at time.Time) []Record {
	if s.Open == nil {
		return nil
	}
	at = at.UTC()
	turnID := s.Open.TurnID
	var records []Record
	for _, call := range s.unanswered() {
		records = append(records, Message{Message: protocol.Message{
			Role: protocol.RoleTool, ToolCallID: call.ID, ToolName: call.Name, TurnID: turnID, IsError: true, At: at,
			Content: "interrupted: the process ended before the result was known",
		}})
	}
	if len(s.text)+len(s.thinking) > 0 {
		records = append(records, Message{Message: protocol.Message{
			Role: protocol.RoleAssistant, Content: string(s.text), Thinking: string(s.thinking), TurnID: turnID, Interrupted: true, At: at,
		}})
	}
	records = append(records, TurnEnd{TurnID: turnID, Outcome: Interrupted, At: at})
	for _, r := range records {
		if err := s.Apply(r); err != nil {
			panic("transcript: repair: " + err.Error()) // none of these can be refused
		}
	}
	return records
}

// unanswered lists the calls of the open turn that have no result.
func (s *State) unanswered() []protocol.ToolCall {
	var calls []protocol.ToolCall
	for _, m := range s.Messages {
		switch m.Role {
		case protocol.RoleUser:
			calls = nil
		case protocol.RoleAssistant:
			calls = append(calls, m.ToolCalls...)
		case protocol.RoleTool:
			calls = slices.DeleteFunc(calls, func(c protocol.ToolCall) bool { return c.ID == m.ToolCallID })
		case protocol.RoleSystem:
		}
	}
	return calls
}
