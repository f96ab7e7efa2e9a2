package protocol

import "github.com/go-json-experiment/json/jsontext"

// AssistantEvent is one step of a turn, carried by [MessageUpdate]. The set is
// closed: the types of this file that implement it.
type AssistantEvent interface {
	// Name is the value of the nested object's "type" member.
	Name() string
	assistantEvent()
}

type (
	// TextDelta is a piece of the answer.
	TextDelta struct {
		Delta string `json:"delta"`
	}

	// ThinkingDelta is a piece of the model's reasoning.
	ThinkingDelta struct {
		Delta string `json:"delta"`
	}

	// ToolcallStart opens a tool call. ToolID ties its later events to it.
	ToolcallStart struct {
		ToolID   string `json:"tool_id"`
		ToolName string `json:"tool_name"`
	}

	// ToolcallInputDelta is a piece of the call's JSON input, not yet whole.
	ToolcallInputDelta struct {
		ToolID string `json:"tool_id"`
		Delta  string `json:"delta"`
	}

	// ToolcallInput is the whole input.
	ToolcallInput struct {
		ToolID string         `json:"tool_id"`
		Input  jsontext.Value `json:"input"`
	}

	// ToolcallOutputDelta is a piece of what a running tool has put out so far.
	// Added by nexus; sent only to parents that said --tool-output or [SetToolOutput], and by
	// the façade only to subscribers that ask for it.
	ToolcallOutputDelta struct {
		ToolID string `json:"tool_id"`
		Delta  string `json:"delta"`
		// Omitted is how many bytes before Delta the façade left out, as the subscriber was
		// slow to read them. The child never leaves it out.
		Omitted uint64 `json:"omitted,omitzero" wire:"default"`
	}

	// ToolcallResult is what the tool gave back, as text.
	ToolcallResult struct {
		ToolID string `json:"tool_id"`
		Result string `json:"result"`
		// Truncated says that Result is only the head of it, as the whole does not fit
		// a frame. Size is that of the whole, in bytes; File holds it, "" if nothing does.
		Truncated bool   `json:"truncated,omitzero" wire:"default"`
		Size      int64  `json:"size,omitzero" wire:"default"`
		File      string `json:"file,omitzero" wire:"default"`
		// IsError says that Result tells of a failure, a refusal or an abort.
		IsError bool `json:"is_error,omitzero" wire:"default"`
	}

	// Fallback says that the model's service is down, and the fallback model is asked in its
	// place for the rest of the turn. Added by nexus; sent as Retry is.
	Fallback struct {
		Model  string `json:"model"` // as PROVIDER/ID
		Reason string `json:"reason"`
	}

	// Retry says that the model's service failed and is asked again, WaitMS milliseconds
	// later: this is try Attempt of at most MaxAttempts. Added by nexus; sent only to
	// parents that said --session-updates, as are the two below.
	Retry struct {
		Reason      string `json:"reason"`
		Attempt     uint64 `json:"attempt"`
		MaxAttempts uint64 `json:"max_attempts"`
		WaitMS      uint64 `json:"wait_ms"`
	}

	// CompactionStart says that old messages are about to give way to a summary, for
	// which the model may be asked.
	CompactionStart struct{}

	// CompactionEnd says what became of it. The tokens, estimates of the whole
	// conversation, are 0 unless Compacted; Reason says why it is as it was.
	CompactionEnd struct {
		Compacted    bool   `json:"compacted"`
		TokensBefore uint64 `json:"tokens_before,omitzero" wire:"default"`
		TokensAfter  uint64 `json:"tokens_after,omitzero" wire:"default"`
		Reason       string `json:"reason,omitzero" wire:"default"`
	}

	// ContextGiven says that the program of an agent of another make does not go on with its own
	// conversation, for that Reason, and is given the text that nexus kept before the prompt of
	// this turn: its last Messages messages, with all but the first Omitted. Added by nexus.
	ContextGiven struct {
		Reason   string `json:"reason"`
		Messages uint64 `json:"messages"`
		Omitted  uint64 `json:"omitted,omitzero" wire:"default"`
	}

	// Foreign is something that a program of another make said and that no other event
	// stands for. Added by nexus.
	Foreign struct {
		Protocol string         `json:"protocol"` // of AgentProgram
		Message  jsontext.Value `json:"message"`  // as the program wrote it
	}

	// UnknownAssistantEvent is a step of a type this package does not know.
	UnknownAssistantEvent struct {
		Type string
		Raw  jsontext.Value
	}
)

func (TextDelta) Name() string               { return "text_delta" }
func (ThinkingDelta) Name() string           { return "thinking_delta" }
func (ToolcallStart) Name() string           { return "toolcall_start" }
func (ToolcallInputDelta) Name() string      { return "toolcall_input_delta" }
func (ToolcallInput) Name() string           { return "toolcall_input" }
func (ToolcallOutputDelta) Name() string     { return "toolcall_output_delta" }
func (ToolcallResult) Name() string          { return "toolcall_result" }
func (Retry) Name() string                   { return "retry" }
func (Fallback) Name() string                { return "fallback" }
func (CompactionStart) Name() string         { return "compaction_start" }
func (CompactionEnd) Name() string           { return "compaction_end" }
func (ContextGiven) Name() string            { return "context_given" }
func (Foreign) Name() string                 { return "foreign" }
func (e UnknownAssistantEvent) Name() string { return e.Type }

func (TextDelta) assistantEvent()             {}
func (ThinkingDelta) assistantEvent()         {}
func (ToolcallStart) assistantEvent()         {}
func (ToolcallInputDelta) assistantEvent()    {}
func (ToolcallInput) assistantEvent()         {}
func (ToolcallOutputDelta) assistantEvent()   {}
func (ToolcallResult) assistantEvent()        {}
func (Retry) assistantEvent()                 {}
func (Fallback) assistantEvent()              {}
func (CompactionStart) assistantEvent()       {}
func (CompactionEnd) assistantEvent()         {}
func (ContextGiven) assistantEvent()          {}
func (Foreign) assistantEvent()               {}
func (UnknownAssistantEvent) assistantEvent() {}

// AssistantEvents are the zero values of all steps of a turn, in the order of SPEC §3.5.
func AssistantEvents() []AssistantEvent {
	return []AssistantEvent{
		TextDelta{},
		ThinkingDelta{},
		ToolcallStart{},
		ToolcallInputDelta{},
		ToolcallInput{},
		ToolcallOutputDelta{},
		ToolcallResult{},
		Retry{},
		Fallback{},
		CompactionStart{},
		CompactionEnd{},
		ContextGiven{},
		Foreign{},
	}
}
