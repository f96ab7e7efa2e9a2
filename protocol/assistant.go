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
	// Added by nexus; sent only to parents that said --tool-output.
	ToolcallOutputDelta struct {
		ToolID string `json:"tool_id"`
		Delta  string `json:"delta"`
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
func (e UnknownAssistantEvent) Name() string { return e.Type }

func (TextDelta) assistantEvent()             {}
func (ThinkingDelta) assistantEvent()         {}
func (ToolcallStart) assistantEvent()         {}
func (ToolcallInputDelta) assistantEvent()    {}
func (ToolcallInput) assistantEvent()         {}
func (ToolcallOutputDelta) assistantEvent()   {}
func (ToolcallResult) assistantEvent()        {}
func (UnknownAssistantEvent) assistantEvent() {}

// AssistantEvents are the zero values of all steps of a turn, in the order of SPEC §3.5.
func AssistantEvents() []AssistantEvent {
	return []AssistantEvent{
		TextDelta{}, ThinkingDelta{}, ToolcallStart{}, ToolcallInputDelta{}, ToolcallInput{}, ToolcallOutputDelta{}, ToolcallResult{},
	}
}
