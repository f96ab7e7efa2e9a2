package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"nexus.internal/protocol"
)

// State is what a session amounts to.
type State struct {
	Header Header
	// SessionID is the present one: the header's, or that of the last Reset.
	SessionID string
	Settings  Settings
	Messages  []protocol.Message
	// Allowances and Notes are in the order they were made; a note that was
	// taken back is not there.
	Allowances []protocol.Allowance
	Notes      []Note
	// Usage is the sum over the conversation so far.
	Usage protocol.TurnUsage
	// ByModel are the parts of Usage, by PROVIDER/MODEL of the settings then.
	ByModel map[string]protocol.TurnUsage
	// Turns is how many turns have ended.
	Turns uint64
	// LastOutcome is how the last turn ended; "" before the first.
	LastOutcome Outcome
	// LastActionAt is the time of the last thing a turn did; zero before the
	// first.
	LastActionAt time.Time

	open     bool // a turn has begun and not ended
	turnID   string
	turn     protocol.TurnUsage // of the open turn, a part of Usage
	text     []byte             // of the pieces since the last whole message
	thinking []byte
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

// Parse replays a session. data[:good] holds whole, sound lines, the last of
// them perhaps without its newline; what follows is a torn tail, which the
// caller cuts off. Only what stands after the last newline can be one: a record
// and its newline are written as one. Where no header stands before it, it is
// one only if it is the beginning of a header, or zeros, as a power cut leaves
// them. All else that cannot be read is a *LineError, which wraps ErrNoSession
// where there is no header. A session with no whole line is an empty State.
func Parse(data []byte) (state *State, good int, err error) {
	state = &State{}
	rest := data
	good, err = state.walk(func() (line []byte, size int, whole bool, err error) {
		if len(rest) == 0 {
			return nil, 0, false, io.EOF
		}
		line, rest, whole = bytes.Cut(rest, []byte{'\n'})
		return line, len(line), whole, nil
	}, func(line []byte, _, _ bool) error {
		record, err := Decode(line)
		if err != nil {
			return err
		}
		return state.Apply(record)
	})
	if err != nil {
		return nil, 0, err
	}
	return state, good, nil
}

// source gives a session line by line, newline excluded; whole says that there
// was one. A line of more bytes than it has is cut off. The error is io.EOF after
// the last line, or that of reading.
type source func() (line []byte, size int, whole bool, err error)

// walk gives each line to add, with whether it is whole, which a last one without
// a newline may not be, and whether it is cut off. add adds it to s, and walk says
// how many bytes are sound, as Parse does.
func (s *State) walk(next source, add func(line []byte, whole, cut bool) error) (good int, err error) {
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
		good += size
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
	case Settings:
		s.Settings = s.Settings.overlay(r)
	case Message:
		s.message(r)
	case Partial:
		s.text = append(s.text, r.Text...)
		s.thinking = append(s.thinking, r.Thinking...)
	case TurnEnd:
		s.count(beyond(r.Usage, s.turn))
		s.open, s.turn, s.text, s.thinking = false, protocol.TurnUsage{}, nil, nil
		s.Turns++
		s.LastOutcome, s.LastActionAt = r.Outcome, r.At
	case Compaction:
		if r.Dropped > uint64(len(s.Messages)) {
			return fmt.Errorf("compaction of %d messages, there are %d", r.Dropped, len(s.Messages))
		}
		s.Messages = slices.Concat([]protocol.Message{r.Summary}, s.Messages[r.Dropped:])
		s.add(r.Usage)
	case Allowance:
		s.Allowances = append(s.Allowances, r.Allowance)
	case Note:
		s.note(r)
	case Reset:
		*s = State{Header: s.Header, Settings: s.Settings, SessionID: r.SessionID}
	case Unknown, Header:
	}
	return nil
}

func (s *State) message(r Message) {
	m := r.Message
	switch m.Role {
	case protocol.RoleUser:
		s.open, s.turnID = true, m.TurnID
	case protocol.RoleAssistant:
		s.text, s.thinking = nil, nil
	case protocol.RoleTool, protocol.RoleSystem:
	}
	s.Messages = append(s.Messages, m)
	s.LastActionAt = m.At
	s.add(r.Usage)
}

// note keeps the latest note of each key.
func (s *State) note(n Note) {
	i := slices.IndexFunc(s.Notes, func(old Note) bool { return old.Key == n.Key })
	switch {
	case n.Data == nil && i >= 0:
		s.Notes = slices.Delete(s.Notes, i, i+1)
	case n.Data == nil:
	case i >= 0:
		s.Notes[i] = n
	default:
		s.Notes = append(s.Notes, n)
	}
}

func (s *State) add(usage *protocol.TurnUsage) {
	if usage == nil {
		return
	}
	s.count(*usage)
	if s.open {
		s.turn.Add(*usage)
	}
}

// count adds to the sums.
func (s *State) count(usage protocol.TurnUsage) {
	s.Usage.Add(usage)
	if s.ByModel == nil {
		s.ByModel = map[string]protocol.TurnUsage{}
	}
	name := protocol.Value(s.Settings.Provider) + "/" + protocol.Value(s.Settings.Model)
	sum := s.ByModel[name]
	sum.Add(usage)
	s.ByModel[name] = sum
}

// beyond is what a turn cost in all and no record of it has counted yet: an
// answer of which nothing was kept.
func beyond(all, counted protocol.TurnUsage) protocol.TurnUsage {
	return protocol.TurnUsage{
		InputTokens:              all.InputTokens - min(all.InputTokens, counted.InputTokens),
		OutputTokens:             all.OutputTokens - min(all.OutputTokens, counted.OutputTokens),
		CacheReadInputTokens:     all.CacheReadInputTokens - min(all.CacheReadInputTokens, counted.CacheReadInputTokens),
		CacheCreationInputTokens: all.CacheCreationInputTokens - min(all.CacheCreationInputTokens, counted.CacheCreationInputTokens),
	}
}

func (s Settings) overlay(later Settings) Settings {
	choose := func(into **string, from *string) {
		if from != nil {
			*into = from
		}
	}
	choose(&s.Model, later.Model)
	choose(&s.Provider, later.Provider)
	choose(&s.Cwd, later.Cwd)
	if later.PromptLayers {
		s.SystemPrompt, s.SystemPromptPath = nil, nil
	}
	choose(&s.SystemPrompt, later.SystemPrompt)
	choose(&s.SystemPromptPath, later.SystemPromptPath)
	choose(&s.ParentAgentID, later.ParentAgentID)
	if later.Depth != nil {
		s.Depth = later.Depth
	}
	if later.Approvals != nil {
		s.Approvals = later.Approvals
	}
	if later.Permissions != nil {
		s.Permissions = later.Permissions
	}
	if later.Ceiling != nil {
		s.Ceiling = later.Ceiling
	}
	if later.Granted != nil {
		s.Granted = later.Granted
	}
	s.At = later.At
	return s
}

// Repair closes a turn that the end of its process cut off: calls without a
// result get one that says so, the pieces of the unfinished answer become a
// message that is marked interrupted, and the turn gets its end. It applies
// the records to s and returns them for the file; nil if no turn is open.
func (s *State) Repair(at time.Time) []Record {
	if !s.open {
		return nil
	}
	at = at.UTC()
	var records []Record
	for _, call := range s.unanswered() {
		records = append(records, Message{Message: protocol.Message{
			Role: protocol.RoleTool, ToolCallID: call.ID, ToolName: call.Name, TurnID: s.turnID, IsError: true, At: at,
			Content: "interrupted: the process ended before the result was known",
		}})
	}
	if len(s.text)+len(s.thinking) > 0 {
		records = append(records, Message{Message: protocol.Message{
			Role: protocol.RoleAssistant, Content: string(s.text), Thinking: string(s.thinking), TurnID: s.turnID, Interrupted: true, At: at,
		}})
	}
	records = append(records, TurnEnd{TurnID: s.turnID, Outcome: Interrupted, At: at})
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
