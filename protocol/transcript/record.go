package transcript

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Version is the version of the layout that this package writes, and the
// latest that it reads.
const Version = 1

// Record is one line of a session. The set is closed: the types of this file.
type Record interface {
	// Kind is the value of the line's "type" member.
	Kind() string
	record()
}

// Outcome says how a turn ended: one of protocol.StopReason's values, or
// Interrupted.
type Outcome string

// Interrupted is the outcome of a turn whose process ended before it did.
const Interrupted Outcome = "interrupted"

type (
	// Header is the first line.
	Header struct {
		Version   uint32    `json:"version"`
		SessionID string    `json:"session_id"`
		Name      string    `json:"name,omitempty" wire:"default"`
		CreatedAt time.Time `json:"created_at"` // UTC
	}

	// Settings are choices that come back with the session. Nil means that the
	// earlier choice holds.
	Settings struct {
		Model            *string `json:"model,omitzero"`
		Provider         *string `json:"provider,omitzero"`
		Cwd              *string `json:"cwd,omitzero"`
		SystemPrompt     *string `json:"system_prompt,omitzero"`
		SystemPromptPath *string `json:"system_prompt_path,omitzero"`
		// PromptLayers takes both back: the prompt is that of the files again.
		PromptLayers bool `json:"prompt_layers,omitzero" wire:"default"`
		// Permissions are as they were asked for; Ceiling is what they cannot
		// exceed, whatever is asked for later.
		Permissions *protocol.Permissions `json:"permissions,omitzero"`
		Ceiling     *protocol.Permissions `json:"ceiling,omitzero"`
		// Granted is what the owner granted: what held after the owner's last word. GrantedCwd is
		// where the owner last had the agent work; an earlier version did not save it, and had it among
		// the paths of Granted.
		Granted    *protocol.Permissions `json:"granted,omitzero"`
		GrantedCwd *string               `json:"granted_cwd,omitzero"`
		// ParentAgentID is the agent that created this one, and Depth how many
		// agents are above it.
		ParentAgentID *string `json:"parent_agent_id,omitzero"`
		Depth         *uint64 `json:"depth,omitzero"`
		// Approvals is what becomes of a call that needs an approval, ask or deny; nil
		// is deny. It is for the parent, which asks for it at the start.
		Approvals *string `json:"approvals,omitzero"`
		// CwdLost is what becomes of the agent where its directory is lost with a machine, wait or fresh; nil is wait. LostCwd is the
		// directory that it has lost so last.
		CwdLost *string           `json:"cwd_lost,omitzero"`
		LostCwd *protocol.LostCwd `json:"lost_cwd,omitzero"`
		// Turns are how turns run, as far as somebody said it for this session.
		Turns *protocol.TurnSettings `json:"turns,omitzero"`
		// Program is the program of another make that the agent runs as; nil for none. A session
		// has one from its beginning, or never.
		Program *protocol.AgentProgram `json:"program,omitzero"`
		// ProgramSession is what the program has of the conversation.
		ProgramSession *ProgramSession `json:"program_session,omitzero"`
		At             time.Time       `json:"at"` // UTC
	}

	// ProgramSession is the conversation as the program of another make has it.
	ProgramSession struct {
		// Of is the id of the session when the program had it: a copy of the session, or the one
		// that a reset began, has none.
		Of string `json:"of"`
		// ID is the program's own name of it.
		ID string `json:"id"`
	}

	// Message is one whole message of the conversation. A user's message opens
	// the turn of its TurnID.
	Message struct {
		Message protocol.Message `json:"message"`
		// Usage is what the provider counted for an assistant's message.
		Usage *protocol.TurnUsage `json:"usage,omitzero"`
	}

	// Partial is a piece of an answer that is not whole yet. The assistant's
	// Message that follows replaces the pieces before it.
	Partial struct {
		TurnID   string `json:"turn_id"`
		Text     string `json:"text,omitempty" wire:"default"`
		Thinking string `json:"thinking,omitempty" wire:"default"`
	}

	// TurnEnd closes a turn.
	TurnEnd struct {
		TurnID  string  `json:"turn_id"`
		Outcome Outcome `json:"outcome"`
		Error   string  `json:"error,omitempty" wire:"default"`
		Reason  string  `json:"reason,omitempty" wire:"default"` // of the response, beside Error
		// LeftOut says that the model's service refused what the turn asked: later requests do without
		// its messages.
		LeftOut bool               `json:"left_out,omitzero" wire:"default"`
		Usage   protocol.TurnUsage `json:"usage"`
		At      time.Time          `json:"at"` // UTC
	}

	// Compaction says that the first Dropped messages gave way to Summary.
	Compaction struct {
		Dropped      uint64              `json:"dropped"`
		Summary      protocol.Message    `json:"summary"`
		TokensBefore uint64              `json:"tokens_before"`
		TokensAfter  uint64              `json:"tokens_after"`
		Usage        *protocol.TurnUsage `json:"usage,omitzero"`
		At           time.Time           `json:"at"` // UTC
		// Checkpoint is what the session amounts to after this record, but for its
		// messages; nil where nobody wrote it.
		Checkpoint *Checkpoint `json:"checkpoint,omitzero"`
	}

	// Allowance is what somebody allowed for the rest of the session.
	Allowance struct {
		Allowance protocol.Allowance `json:"allowance"`
		At        time.Time          `json:"at"` // UTC
	}

	// Revocation takes allowances back; all if it names none.
	Revocation struct {
		Allowances []protocol.Allowance `json:"allowances,omitempty" wire:"default"`
		At         time.Time            `json:"at"` // UTC
	}

	// Note is one thing that the model gets beside the conversation. The
	// latest note of a key holds; one without data takes it back.
	Note struct {
		Key  string         `json:"key"`
		Data jsontext.Value `json:"data,omitempty" wire:"default"`
		At   time.Time      `json:"at"` // UTC
	}

	// Reset says that the conversation was discarded and another begun.
	Reset struct {
		SessionID string    `json:"session_id"`
		At        time.Time `json:"at"` // UTC
		// Checkpoint is that of a Compaction, without messages.
		Checkpoint *Checkpoint `json:"checkpoint,omitzero"`
	}

	// Undo says that of the conversation only its first Kept messages are left. The next begins a turn.
	Undo struct {
		Kept uint64    `json:"kept"`
		At   time.Time `json:"at"` // UTC
	}

	// Unknown is a record of a type this package does not know.
	Unknown struct {
		Type string
		Raw  jsontext.Value
	}
)

func (Header) Kind() string     { return "session" }
func (Settings) Kind() string   { return "settings" }
func (Message) Kind() string    { return "message" }
func (Partial) Kind() string    { return "partial" }
func (TurnEnd) Kind() string    { return "turn_end" }
func (Compaction) Kind() string { return "compaction" }
func (Allowance) Kind() string  { return "allowance" }
func (Revocation) Kind() string { return "revocation" }
func (Note) Kind() string       { return "note" }
func (Reset) Kind() string      { return "reset" }
func (Undo) Kind() string       { return "undo" }
func (r Unknown) Kind() string  { return r.Type }

func (Header) record()     {}
func (Settings) record()   {}
func (Message) record()    {}
func (Partial) record()    {}
func (TurnEnd) record()    {}
func (Compaction) record() {}
func (Allowance) record()  {}
func (Revocation) record() {}
func (Note) record()       {}
func (Reset) record()      {}
func (Undo) record()       {}
func (Unknown) record()    {}

// VersionError says that a later program wrote the session.
type VersionError struct{ Got uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("session has layout version %d; this program reads up to %d", e.Got, Version)
}

// Append appends the line of r to dst, newline excluded. It fails only on
// strings that are not UTF-8 and on raw values that are not JSON.
func Append(dst []byte, r Record) ([]byte, error) {
	switch r := r.(type) {
	case Unknown:
		return append(dst, r.Raw...), nil
	case Message: // two for each turn, and its end: not through reflection
		return appendMessage(dst, r)
	case TurnEnd:
		if protocol.PlainTime(r.At) {
			return appendTurnEnd(dst, r)
		}
	default:
	}
	members, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", r.Kind(), err)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, r.Kind()...)
	dst = append(dst, `",`...)
	return append(dst, members[1:]...), nil // every record has a member
}

func appendMessage(dst []byte, r Message) ([]byte, error) {
	m := protocol.NewMembers(dst)
	m.String("type", r.Kind())
	m.Message("message", r.Message)
	if r.Usage != nil {
		m.Usage("usage", *r.Usage)
	}
	return closed(&m, r.Kind())
}

func appendTurnEnd(dst []byte, r TurnEnd) ([]byte, error) {
	m := protocol.NewMembers(dst)
	m.String("type", r.Kind())
	m.String("turn_id", r.TurnID)
	m.String("outcome", string(r.Outcome))
	m.OmitEmpty("error", r.Error)
	m.OmitEmpty("reason", r.Reason)
	m.OmitFalse("left_out", r.LeftOut)
	m.Usage("usage", r.Usage)
	m.Time("at", r.At)
	return closed(&m, r.Kind())
}

// closed is the line of a record, of which all members are written.
func closed(m *protocol.Members, kind string) ([]byte, error) {
	line, err := m.Close()
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", kind, err)
	}
	return line, nil
}

// Decode decodes one line, newline excluded. Errors say what is wrong with the
// line; a *VersionError is one of them.
func Decode(line []byte) (Record, error) {
	if err := strict.Valid(line); err != nil {
		return nil, err
	}
	typ := gjson.GetBytes(line, "type")
	if typ.Type != gjson.String {
		return nil, &strict.Error{Path: "type", Problem: "is missing or no string"}
	}
	switch typ.Str {
	case "session":
		var v struct {
			Version uint32 `json:"version"`
		}
		if err := strict.Fill(line, &v, strict.IgnoreUnknown); err != nil {
			return nil, err
		}
		if v.Version == 0 {
			return nil, &strict.Error{Path: "version", Problem: "is 0"}
		}
		if v.Version > Version {
			return nil, &VersionError{Got: v.Version}
		}
		return fill[Header](line)
	case "settings":
		return fill[Settings](line)
	case "message":
		return fill[Message](line)
	case "partial":
		return fill[Partial](line)
	case "turn_end":
		return fill[TurnEnd](line)
	case "compaction":
		return fill[Compaction](line)
	case "allowance":
		return fill[Allowance](line)
	case "revocation":
		return fill[Revocation](line)
	case "note":
		return fill[Note](line)
	case "reset":
		return fill[Reset](line)
	case "undo":
		return fill[Undo](line)
	default:
		return Unknown{Type: typ.Str, Raw: jsontext.Value(line).Clone()}, nil
	}
}

func fill[T Record](line []byte) (Record, error) {
	var r T
	if err := strict.Fill(line, &r, strict.IgnoreUnknown); err != nil {
		return nil, err
	}
	return r, nil
}
