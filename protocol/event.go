package protocol

import "github.com/go-json-experiment/json/jsontext"

// Event is a message from the child to the parent, or one that a server adds to
// those in its streams. The set is closed: the types of this file that implement it,
// and those of serverevent.go.
type Event interface {
	// Name is the value of the frame's "type" member.
	Name() string
	event()
}

// StopReason says why a turn ended.
type StopReason string

// The reasons that [AgentEnd] states.
const (
	StopCompleted     StopReason = "completed"
	StopAborted       StopReason = "aborted"
	StopError         StopReason = "error"
	StopMaxIterations StopReason = "max_iterations"
	// StopMaxTokens and StopContentFilter say that the model's service ended the answer
	// early: the text is its beginning.
	StopMaxTokens     StopReason = "max_tokens"
	StopContentFilter StopReason = "content_filter"
)

// AnswersLost is how the message of an [Error] without id begins that says how
// many answers were lost because stdout was not read (SPEC §3.4).
const AnswersLost = "stdout was not read: "

type (
	// Ready is the first frame of every child.
	Ready struct {
		SessionID       string `json:"session_id"`
		Model           string `json:"model"`
		ProtocolVersion uint32 `json:"protocol_version"`
	}

	// MessageUpdate carries one step of the running turn.
	MessageUpdate struct {
		Event AssistantEvent `json:"event"`
	}

	// SubagentStart says that the agent works through another one.
	SubagentStart struct {
		SubagentID  uint64 `json:"subagent_id"`
		AgentName   string `json:"agent_name"`
		TaskPreview string `json:"task_preview"`
	}

	// SubagentUpdate is a sign of progress of a subagent.
	SubagentUpdate struct {
		SubagentID uint64 `json:"subagent_id"`
		AgentName  string `json:"agent_name"`
		Status     string `json:"status"`
	}

	// SubagentDone ends what a SubagentStart began.
	SubagentDone struct {
		SubagentID    uint64  `json:"subagent_id"`
		AgentName     string  `json:"agent_name"`
		ResultPreview string  `json:"result_preview"`
		DurationSecs  float64 `json:"duration_secs"` // wall clock, seconds
	}

	// AgentEnd closes a turn's stream of updates. The prompt's response
	// follows it and is the end of the turn.
	AgentEnd struct {
		Usage TurnUsage `json:"usage"`
		// StopReason and TurnID are added by nexus; another child may omit
		// them. TurnID is the prompt's id.
		StopReason StopReason `json:"stop_reason,omitempty" wire:"default" enum:"completed,max_iterations,max_tokens,content_filter,aborted,error"`
		TurnID     string     `json:"turn_id,omitempty" wire:"default"`
	}

	// Response answers one command. The members of Body stand beside id and
	// command in the frame.
	Response struct {
		ID      string
		Command string
		// Body is a JSON object whose members are none of type, id, command.
		// Nil is written as no members.
		Body jsontext.Value
	}

	// Error reports a fault. ID is nil where no command can be blamed.
	Error struct {
		ID      *string `json:"id,omitzero"`
		Message string  `json:"message"`
	}

	// SessionUpdate is the child's state in short, sent after ready and after
	// each change if the parent asked for it with --session-updates. Added by
	// nexus.
	SessionUpdate struct {
		SessionID    string `json:"session_id"`
		Model        string `json:"model"`
		Provider     string `json:"provider"`
		Preset       string `json:"preset"`
		Cwd          string `json:"cwd"`
		MessageCount uint64 `json:"message_count"`
		// TotalTokens and BudgetTokens describe the context window.
		TotalTokens            uint64 `json:"total_tokens"`
		BudgetTokens           uint64 `json:"budget_tokens"`
		HaltedAtIterationLimit bool   `json:"halted_at_iteration_limit"`
		// LastActionAt is RFC 3339, UTC; nil before the first turn.
		LastActionAt *string `json:"last_action_at,omitzero"`
		// Kind is that of an agent of another make; "" for one of nexus.
		Kind string `json:"kind,omitempty" wire:"default"`
	}

	// PermissionRequest asks the parent whether a tool call may run. The answer
	// is a [PermissionResponse]; without one by the deadline the call is
	// refused. Sent only to parents that said --approvals ask.
	PermissionRequest struct {
		RequestID string `json:"request_id"`
		TurnID    string `json:"turn_id"`
		// ToolID is the id of the tool call.
		ToolID   string `json:"tool_id"`
		ToolName string `json:"tool_name"`
		Action   Action `json:"action" enum:"none,read,write,delegate,execute,external,fetch"`
		// Summary says in one line what is asked for; Reason why it is asked.
		Summary string `json:"summary"`
		Reason  string `json:"reason"`
		// Input is the call's input, or its head and size if it is long.
		Input jsontext.Value `json:"input"`
		// Paths are absolute: what the call reads or changes, as far as known.
		Paths []string `json:"paths"`
		// Command is what a shell would run; "" for no shell.
		Command string `json:"command,omitempty" wire:"default"`
		// Deadline is RFC 3339, UTC.
		Deadline string `json:"deadline"`
		// Decisions are those that may be given.
		Decisions []Decision `json:"decisions" enum:"allow_once,allow_session,deny"`
		// ForSession says in one line what an allow for the session would cover; "" where that is not among
		// Decisions, and of a child that does not say it.
		ForSession string `json:"for_session,omitempty" wire:"default"`
		// Options are the answers that a program of another make offers, of which a
		// [PermissionResponse] may name one. Without them a decision is all that there is.
		Options []PermissionOption `json:"options,omitempty" wire:"default"`
	}

	// PermissionEnd says that a PermissionRequest needs no answer any more.
	PermissionEnd struct {
		RequestID string `json:"request_id"`
		Outcome   string `json:"outcome" enum:"allowed,denied,expired,cancelled"`
	}

	// HostCall asks the parent to do something with other agents. The answer is
	// a [HostResult]. Sent only to parents that said --host-calls.
	HostCall struct {
		CallID string `json:"call_id"`
		// TurnID is the turn that asks: its end cancels the call.
		TurnID string         `json:"turn_id"`
		Method string         `json:"method"`
		Params jsontext.Value `json:"params" schema:"object"`
	}

	// HostCancel says that nobody waits for a HostCall any more.
	HostCancel struct {
		CallID string `json:"call_id"`
	}

	// UnknownEvent is an event of a type this package does not know, kept as
	// it was read so that it can be passed on.
	UnknownEvent struct {
		Type string
		Raw  jsontext.Value
	}
)

// Reserved reports whether events of that type are made by the supervisor or the
// façade alone (SPEC §5.6, §6.4), so that a child must not write them. A type that no
// version of this package knows is not reserved: a newer child may write it.
func Reserved(typ string) bool {
	switch typ {
	case "stream_start", "stream_data", "stream_end", "stream_restart": // of a send's stream
		return true
	default:
		_, ok := serverEvents[typ]
		return ok
	}
}

func (Ready) Name() string             { return "ready" }
func (MessageUpdate) Name() string     { return "message_update" }
func (SubagentStart) Name() string     { return "subagent_start" }
func (SubagentUpdate) Name() string    { return "subagent_update" }
func (SubagentDone) Name() string      { return "subagent_done" }
func (AgentEnd) Name() string          { return "agent_end" }
func (Response) Name() string          { return "response" }
func (Error) Name() string             { return "error" }
func (SessionUpdate) Name() string     { return "session_update" }
func (PermissionRequest) Name() string { return "permission_request" }
func (PermissionEnd) Name() string     { return "permission_end" }
func (HostCall) Name() string          { return "host_call" }
func (HostCancel) Name() string        { return "host_cancel" }
func (e UnknownEvent) Name() string    { return e.Type }

func (Ready) event()             {}
func (MessageUpdate) event()     {}
func (SubagentStart) event()     {}
func (SubagentUpdate) event()    {}
func (SubagentDone) event()      {}
func (AgentEnd) event()          {}
func (Response) event()          {}
func (Error) event()             {}
func (SessionUpdate) event()     {}
func (PermissionRequest) event() {}
func (PermissionEnd) event()     {}
func (HostCall) event()          {}
func (HostCancel) event()        {}
func (UnknownEvent) event()      {}

// Events are the zero values of all events of a child, in the order of SPEC §3.5.
func Events() []Event {
	return []Event{
		Ready{},
		MessageUpdate{},
		AgentEnd{},
		Response{},
		Error{},
		SubagentStart{},
		SubagentUpdate{},
		SubagentDone{},
		SessionUpdate{},
		PermissionRequest{},
		PermissionEnd{},
		HostCall{},
		HostCancel{},
	}
}
