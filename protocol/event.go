package protocol

import "github.com/go-json-experiment/json/jsontext"

// Event is a message from the child to the parent. The set is closed: the
// types of this file that implement it.
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
)

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
		StopReason StopReason `json:"stop_reason,omitempty" wire:"default"`
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
	}

	// UnknownEvent is an event of a type this package does not know, kept as
	// it was read so that it can be passed on.
	UnknownEvent struct {
		Type string
		Raw  jsontext.Value
	}
)

func (Ready) Name() string          { return "ready" }
func (MessageUpdate) Name() string  { return "message_update" }
func (SubagentStart) Name() string  { return "subagent_start" }
func (SubagentUpdate) Name() string { return "subagent_update" }
func (SubagentDone) Name() string   { return "subagent_done" }
func (AgentEnd) Name() string       { return "agent_end" }
func (Response) Name() string       { return "response" }
func (Error) Name() string          { return "error" }
func (SessionUpdate) Name() string  { return "session_update" }
func (e UnknownEvent) Name() string { return e.Type }

func (Ready) event()          {}
func (MessageUpdate) event()  {}
func (SubagentStart) event()  {}
func (SubagentUpdate) event() {}
func (SubagentDone) event()   {}
func (AgentEnd) event()       {}
func (Response) event()       {}
func (Error) event()          {}
func (SessionUpdate) event()  {}
func (UnknownEvent) event()   {}
