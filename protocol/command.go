package protocol

import (
	"github.com/go-json-experiment/json/jsontext"
)

// MaxID bounds the id of a command, and what the child calls its host calls and questions, in bytes: each frame that echoes one has room for
// more (SPEC §3.3).
const MaxID = 4096

// Command is a message from the parent to the child. The set is closed: the
// types of this file that implement it.
type Command interface {
	// Name is the value of the frame's "type" member.
	Name() string
	// Ident is the correlation id that the response echoes; "" for none.
	Ident() string
	command()
}

type (
	// Prompt starts a turn. It is refused while another one runs (SPEC §3.4).
	Prompt struct {
		ID      string `json:"id"`
		Message string `json:"message"`
		// Attachments is always written, as [] if there are none.
		Attachments []Attachment `json:"attachments" wire:"default"`
		// Source says where the message comes from, and SourceAgentID which agent
		// wrote it, if the sender said so; the message keeps both. "" for neither.
		// They are as CheckSource wants them. Added by nexus.
		Source        string `json:"source,omitempty" wire:"default"`
		SourceAgentID string `json:"source_agent_id,omitempty" wire:"default"`
		// Traceparent is the W3C Trace Context that requests to the model bear; ""
		// for none. One that is not valid counts as none. Added by nexus.
		Traceparent string `json:"traceparent,omitempty" wire:"default"`
	}

	// FollowUp is a prompt that waits for the running turn to end.
	FollowUp struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	}

	// Compact replaces old messages by a summary.
	Compact struct {
		ID string `json:"id"`
		// Force keeps the last turn alone, and takes a summary that is no shorter.
		// Added by nexus.
		Force bool `json:"force,omitzero" wire:"default"`
	}

	// NewSession discards the conversation and begins another.
	NewSession struct {
		ID string `json:"id"`
	}

	// Undo takes the last turn out of the conversation. Added by nexus.
	Undo struct {
		ID string `json:"id"`
		// Files takes back what its tools changed in files as well.
		Files bool `json:"files,omitzero" wire:"default"`
		// Unasked leaves files as they are that the tools would have to ask about.
		Unasked bool `json:"unasked,omitzero" wire:"default"`
	}

	// GetMessages asks for the conversation, a page at a time.
	GetMessages struct {
		ID string `json:"id"`
		// Offset is the index of the first message wanted; nil means 0.
		Offset *uint64 `json:"offset,omitzero"`
		// Limit is how many are wanted at most; nil means all that fit a frame.
		Limit *uint64 `json:"limit,omitzero"`
		// IncludeCompacted asks for all that was said since the conversation began: the messages that
		// gave way to summaries, and no summaries. Offset counts among these. Added by nexus.
		IncludeCompacted bool `json:"include_compacted,omitzero" wire:"default"`
	}

	// SetModel switches the model for the turns to come.
	SetModel struct {
		ID    string `json:"id"`
		Model string `json:"model"`
	}

	// SetSettings changes how the turns to come run; what it does not say stays.
	SetSettings struct {
		ID       string       `json:"id"`
		Settings TurnSettings `json:"settings"`
	}

	// SetToolOutput says whether the output of running tools is wanted from now on, also of
	// those that run already, as [ToolcallOutputDelta]. Added by nexus.
	SetToolOutput struct {
		ID string `json:"id"`
		On bool   `json:"on"`
	}

	// GetAvailableModels asks which models could be set.
	GetAvailableModels struct {
		ID string `json:"id"`
	}

	// Abort ends the running turn. It never waits behind the turn.
	Abort struct {
		ID string `json:"id"`
	}

	// GetSessionStats asks for the session's token totals.
	GetSessionStats struct {
		ID string `json:"id"`
	}

	// GetState asks for everything the child knows about itself.
	GetState struct {
		ID string `json:"id"`
	}

	// ToolsList asks which tools the model may call.
	ToolsList struct {
		// ID may be missing; the response then carries the id "".
		ID *string `json:"id,omitzero"`
	}

	// Ping asks for a sign of life. It is answered by the reader of stdin
	// itself, whatever the turn is doing. Added by nexus.
	Ping struct {
		ID string `json:"id"`
	}

	// SetCwd moves the agent to another working directory, for the turns to
	// come. Added by nexus, like all that follow but Shutdown.
	SetCwd struct {
		ID  string `json:"id"`
		Cwd string `json:"cwd"` // absolute
		// Within bounds where it may move.
		Within Bound `json:"within,omitempty" wire:"default"`
	}

	// SetPermissions changes what the agent may do, never beyond its ceiling
	// (SPEC §4.5). Exactly one of Preset and Permissions is given. Unknown members within
	// the permissions are errors: a misspelt rule would forbid nothing.
	SetPermissions struct {
		ID string `json:"id"`
		// Preset is a preset's name.
		Preset      *string      `json:"preset,omitzero"`
		Permissions *Permissions `json:"permissions,omitzero" strict:"closed"`
		// Within bounds what is asked for.
		Within Bound `json:"within,omitempty" wire:"default"`
		// Granted lowers the grant: it is at most this afterwards.
		Granted *Permissions `json:"granted,omitzero" strict:"closed"`
	}

	// RevokeAllowances takes back what was allowed for the rest of the session. Added by nexus.
	RevokeAllowances struct {
		ID string `json:"id"`
		// Allowances are those of get_state; all if there are none.
		Allowances []Allowance `json:"allowances,omitempty" wire:"default"`
	}

	// SetSystemPrompt replaces the system prompt for the turns to come.
	SetSystemPrompt struct {
		ID string `json:"id"`
		// SystemPrompt may be empty: there is none then. Nil goes back to the
		// layers of SPEC §4.7.
		SystemPrompt *string `json:"system_prompt,omitzero"`
	}

	// UpdateContext adds, changes or removes one thing that the model gets
	// beside the conversation (SPEC §4.8).
	UpdateContext struct {
		ID          string         `json:"id"`
		Action      string         `json:"action"`       // add, modify or remove
		ContextType string         `json:"context_type"` // file, dependency or state
		Data        jsontext.Value `json:"data" schema:"object"`
	}

	// GetNotes asks for what UpdateContext told. Added by nexus.
	GetNotes struct {
		ID string `json:"id"`
	}

	// ListJobs asks for the commands that the agent runs, or has run, in the background. Added by nexus.
	ListJobs struct {
		ID string `json:"id"`
	}

	// MCPConnect starts an MCP server of the configuration (SPEC §4.9).
	MCPConnect struct {
		ID     string `json:"id"`
		Server string `json:"server"` // its name
		// Target is what get_state says of a server that the project names: that is
		// what is allowed.
		Target *string `json:"target,omitzero"`
	}

	// MCPDisconnect ends an MCP server until it is connected again.
	MCPDisconnect struct {
		ID     string `json:"id"`
		Server string `json:"server"`
	}

	// PermissionResponse answers a [PermissionRequest].
	PermissionResponse struct {
		ID        string   `json:"id"`
		RequestID string   `json:"request_id"`
		Decision  Decision `json:"decision"`
		// Reason is shown to the model where the decision is a no.
		Reason string `json:"reason,omitempty" wire:"default"`
		// OptionID is one of the request's options, of the kind of Decision; "" takes the first of
		// that kind.
		OptionID string `json:"option_id,omitempty" wire:"default"`
	}

	// HostResult answers a [HostCall], by Result or by Error.
	HostResult struct {
		ID     string         `json:"id"`
		CallID string         `json:"call_id"`
		Result jsontext.Value `json:"result,omitempty" wire:"default"`
		Error  *HostError     `json:"error,omitzero"`
	}

	// Shutdown ends the child. It has no id and no response.
	Shutdown struct{}
)

func (Prompt) Name() string             { return "prompt" }
func (FollowUp) Name() string           { return "follow_up" }
func (Compact) Name() string            { return "compact" }
func (NewSession) Name() string         { return "new_session" }
func (Undo) Name() string               { return "undo" }
func (GetMessages) Name() string        { return "get_messages" }
func (SetModel) Name() string           { return "set_model" }
func (SetSettings) Name() string        { return "set_settings" }
func (SetToolOutput) Name() string      { return "set_tool_output" }
func (GetAvailableModels) Name() string { return "get_available_models" }
func (Abort) Name() string              { return "abort" }
func (GetSessionStats) Name() string    { return "get_session_stats" }
func (GetState) Name() string           { return "get_state" }
func (ToolsList) Name() string          { return "tools_list" }
func (Ping) Name() string               { return "ping" }
func (SetCwd) Name() string             { return "set_cwd" }
func (SetPermissions) Name() string     { return "set_permissions" }
func (RevokeAllowances) Name() string   { return "revoke_allowances" }
func (SetSystemPrompt) Name() string    { return "set_system_prompt" }
func (UpdateContext) Name() string      { return "update_context" }
func (GetNotes) Name() string           { return "get_notes" }
func (ListJobs) Name() string           { return "list_jobs" }
func (MCPConnect) Name() string         { return "mcp_connect" }
func (MCPDisconnect) Name() string      { return "mcp_disconnect" }
func (PermissionResponse) Name() string { return "permission_response" }
func (HostResult) Name() string         { return "host_result" }
func (Shutdown) Name() string           { return "shutdown" }

func (c Prompt) Ident() string             { return c.ID }
func (c FollowUp) Ident() string           { return c.ID }
func (c Compact) Ident() string            { return c.ID }
func (c NewSession) Ident() string         { return c.ID }
func (c Undo) Ident() string               { return c.ID }
func (c GetMessages) Ident() string        { return c.ID }
func (c SetModel) Ident() string           { return c.ID }
func (c SetSettings) Ident() string        { return c.ID }
func (c SetToolOutput) Ident() string      { return c.ID }
func (c GetAvailableModels) Ident() string { return c.ID }
func (c Abort) Ident() string              { return c.ID }
func (c GetSessionStats) Ident() string    { return c.ID }
func (c GetState) Ident() string           { return c.ID }
func (c Ping) Ident() string               { return c.ID }
func (c SetCwd) Ident() string             { return c.ID }
func (c SetPermissions) Ident() string     { return c.ID }
func (c RevokeAllowances) Ident() string   { return c.ID }
func (c SetSystemPrompt) Ident() string    { return c.ID }
func (c UpdateContext) Ident() string      { return c.ID }
func (c GetNotes) Ident() string           { return c.ID }
func (c ListJobs) Ident() string           { return c.ID }
func (c MCPConnect) Ident() string         { return c.ID }
func (c MCPDisconnect) Ident() string      { return c.ID }
func (c PermissionResponse) Ident() string { return c.ID }
func (c HostResult) Ident() string         { return c.ID }
func (Shutdown) Ident() string             { return "" }

func (c ToolsList) Ident() string {
	if c.ID == nil {
		return ""
	}
	return *c.ID
}

func (Prompt) command()             {}
func (FollowUp) command()           {}
func (Compact) command()            {}
func (NewSession) command()         {}
func (Undo) command()               {}
func (GetMessages) command()        {}
func (SetModel) command()           {}
func (SetSettings) command()        {}
func (SetToolOutput) command()      {}
func (GetAvailableModels) command() {}
func (Abort) command()              {}
func (GetSessionStats) command()    {}
func (GetState) command()           {}
func (ToolsList) command()          {}
func (Ping) command()               {}
func (SetCwd) command()             {}
func (SetPermissions) command()     {}
func (RevokeAllowances) command()   {}
func (SetSystemPrompt) command()    {}
func (UpdateContext) command()      {}
func (GetNotes) command()           {}
func (ListJobs) command()           {}
func (MCPConnect) command()         {}
func (MCPDisconnect) command()      {}
func (PermissionResponse) command() {}
func (HostResult) command()         {}
func (Shutdown) command()           {}

// Commands are the zero values of all commands, in the order of SPEC §3.3.
func Commands() []Command {
	return []Command{
		Prompt{},
		FollowUp{},
		Abort{},
		Compact{},
		NewSession{},
		Undo{},
		GetMessages{},
		SetModel{},
		SetSettings{},
		SetToolOutput{},
		GetAvailableModels{},
		GetSessionStats{},
		GetState{},
		ToolsList{},
		Ping{},
		SetCwd{},
		SetPermissions{},
		RevokeAllowances{},
		SetSystemPrompt{},
		UpdateContext{},
		GetNotes{},
		ListJobs{},
		MCPConnect{},
		MCPDisconnect{},
		PermissionResponse{},
		HostResult{},
		Shutdown{},
	}
}
