package protocol

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
)

// Answered is a command that has a response; R is the type of its answer: the
// members of an "ok":true response beside ok itself (SPEC §3.3, §3.6). A child writes it
// with [SuccessResponse].
type Answered[R any] interface {
	Command
	// Answer reads the answer from a response that is no refusal. Members that R does
	// not have are ignored. The error is a *strict.Error, which names the member that
	// is wrong or missing; those with wire:"default" may be missing.
	Answer(r Response) (R, error)
}

// Request is an Answered command whose response is all that comes of it, so that a
// parent can ask for it by one call. Prompt, FollowUp and HostResult are none.
type Request[R any] interface {
	Answered[R]
	// WithID returns the command with another id.
	WithID(id string) Command
}

// The answers, by command.
type (
	// TurnDone is the answer to Prompt, FollowUp and Abort.
	TurnDone struct {
		Cancelled bool `json:"cancelled,omitzero" wire:"default"` // the turn was aborted
	}

	// Acknowledged is the answer to Ping, PermissionResponse and HostResult.
	Acknowledged struct{}

	// Compaction is the answer to Compact.
	Compaction struct {
		Cancelled bool   `json:"cancelled,omitzero" wire:"default"`
		Compacted bool   `json:"compacted"`
		Reason    string `json:"reason,omitzero" wire:"default"` // why it is not compacted
		Summary   string `json:"summary,omitzero" wire:"default"`
		// By is who wrote the summary: the model, or a rule offline and where the model failed.
		By           string `json:"by,omitzero" wire:"default" enum:"model,rule"`
		TokensBefore uint64 `json:"tokens_before,omitzero" wire:"default"`
		TokensAfter  uint64 `json:"tokens_after,omitzero" wire:"default"`
	}

	// NewSessionAnswer is the answer to NewSession.
	NewSessionAnswer struct {
		SessionID string `json:"session_id" wire:"default"`
	}

	// MessagesPage is the answer to GetMessages.
	MessagesPage struct {
		// Messages is an array of [PageMessage], kept as it was written: a parent passes
		// it on.
		Messages jsontext.Value `json:"messages"`
		Total    uint64         `json:"total"`
		Offset   uint64         `json:"offset"`
	}

	// UndoAnswer is the answer to Undo.
	UndoAnswer struct {
		// Undone is false if there is no turn to take out; Reason says why.
		Undone bool   `json:"undone"`
		Reason string `json:"reason,omitempty" wire:"default"`
		// TurnID is that of the turn that is gone, and Removed how many messages it had.
		TurnID  string `json:"turn_id,omitempty" wire:"default"`
		Removed uint64 `json:"removed,omitzero" wire:"default"`
		// MessageCount is how many are left.
		MessageCount uint64 `json:"message_count" wire:"default"`
		// Files is what became of the files, with Undo.Files alone.
		Files *FilesUndone `json:"files,omitzero"`
	}

	// FilesUndone is what became of the files that a turn changed.
	FilesUndone struct {
		// Restored are the paths that are as before the turn, Left those that are not.
		Restored []string   `json:"restored" wire:"default"`
		Left     []FileLeft `json:"left" wire:"default"`
		// NotUndone are tools that the turn ran and of whose changes nothing is kept, as shell.
		NotUndone []string `json:"not_undone" wire:"default"`
	}

	// FileLeft is a file that is not as it was before the turn.
	FileLeft struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	}

	// SetModelAnswer is the answer to SetModel.
	SetModelAnswer struct {
		Model    string `json:"model" wire:"default"`
		Provider string `json:"provider" wire:"default"`
	}

	// SetSettingsAnswer is the answer to SetSettings: all that hold.
	SetSettingsAnswer struct {
		Settings TurnSettings `json:"settings" wire:"default"`
	}

	// AvailableModels is the answer to GetAvailableModels.
	AvailableModels struct {
		Models []Model `json:"models"`
		// Notes say what Models lacks: of a provider that has more than are listed, or whose list
		// is not known, and why.
		Notes []string `json:"notes,omitempty" wire:"default"`
	}

	// Stats is the answer to GetSessionStats.
	Stats struct {
		SessionUsage
		// Cost is in US dollars: 0 for the offline model, nil where the price of a model
		// that was used is not known.
		Cost         *float64 `json:"cost"`
		MessageCount uint64   `json:"message_count" wire:"default"`
		Turns        uint64   `json:"turns" wire:"default"`
		Model        string   `json:"model" wire:"default"`
		SessionID    string   `json:"session_id" wire:"default"`
	}

	// ToolList is the answer to ToolsList.
	ToolList struct {
		Tools []Tool `json:"tools"`
	}

	// SetCwdAnswer is the answer to SetCwd.
	SetCwdAnswer struct {
		Cwd string `json:"cwd" wire:"default"`
	}

	// SetPermissionsAnswer is the answer to SetPermissions: the permissions that hold now.
	SetPermissionsAnswer struct {
		Permissions Permissions `json:"permissions" wire:"default"`
	}

	// RevokeAllowancesAnswer is the answer to RevokeAllowances: how many are gone, and which are left.
	RevokeAllowancesAnswer struct {
		Revoked    uint64      `json:"revoked" wire:"default"`
		Allowances []Allowance `json:"allowances" wire:"default"`
	}

	// SetSystemPromptAnswer is the answer to SetSystemPrompt.
	SetSystemPromptAnswer struct {
		SystemPromptPath *string `json:"system_prompt_path"`
	}

	// UpdateContextAnswer is the answer to UpdateContext.
	UpdateContextAnswer struct {
		Notes uint64 `json:"notes" wire:"default"` // how many there are now
	}

	// Notes is the answer to GetNotes.
	Notes struct {
		Notes []Note `json:"notes" wire:"default"` // in the order in which they came
	}

	// Note is one thing that the model gets beside the conversation.
	Note struct {
		ContextType string         `json:"context_type"` // file, dependency or state
		Name        string         `json:"name"`         // what it is about: the path, name or key in data
		Data        jsontext.Value `json:"data" schema:"object"`
		UpdatedAt   time.Time      `json:"updated_at"` // UTC
	}

	// JobList is the answer to ListJobs, the oldest first.
	JobList struct {
		Jobs []Job `json:"jobs" wire:"default"`
	}

	// Job is one command in the background.
	Job struct {
		JobID     string    `json:"job_id"`
		Command   string    `json:"command"`
		Running   bool      `json:"running"`
		StartedAt time.Time `json:"started_at"` // UTC
		// EndedAt and Result, how it ended in words, are of one that does not run any more.
		EndedAt     *time.Time `json:"ended_at,omitzero"`
		Result      string     `json:"result,omitempty" wire:"default"`
		OutputBytes uint64     `json:"output_bytes" wire:"default"` // so far
	}

	// MCPAnswer is the answer to MCPConnect and MCPDisconnect.
	MCPAnswer struct {
		Server MCPServer `json:"server"`
	}
)

// Refusal is what a response has that says no ("ok":false), to any command.
type Refusal struct {
	Error  string `json:"error" wire:"default"`
	Reason string `json:"reason,omitzero" wire:"default" enum:"storage_full,not_saved,beyond_bound,busy,rate_limited,credentials,unreachable,budget_exceeded,content_refused,unsupported"`
	// RetryAfterMS is how long the model's service wants to be left alone; 0 if it does not say.
	RetryAfterMS uint64 `json:"retry_after_ms,omitzero" wire:"default"`
	// Permissions are those that hold now, where SetPermissions could not be saved and
	// what it takes from the agent holds all the same.
	Permissions *Permissions `json:"permissions,omitzero"`
	// Granted is what the owner granted, beside Permissions (SPEC §4.5, the grant).
	Granted *Permissions `json:"granted,omitzero"`
}

// Why a response says no, as the Reason of its [Refusal]; "" for any other reason.
const (
	StorageFull = "storage_full" // there is no room on the session's disk
	NotSaved    = "not_saved"    // the session's file cannot be written otherwise
	BeyondBound = "beyond_bound" // the change is beyond its Bound
	Busy        = "busy"         // a turn or a compaction runs
	Unsupported = "unsupported"  // an agent of another make does not offer the command

	// Of what asks a model's service, or the broker before it.
	RateLimited    = "rate_limited"    // too many requests or tokens at once
	Credentials    = "credentials"     // the key is missing, wrong, or not good for this
	Unreachable    = "unreachable"     // no answer came, or only that the service is down
	BudgetExceeded = "budget_exceeded" // the account's money, or the agent's limits.tokens, is used up
	ContentRefused = "content_refused" // what was asked or answered is not wanted by the service
)

// SuccessResponse is the response to c with its answer. Text in it that is not UTF-8 is replaced.
func SuccessResponse[R any](c Answered[R], answer R) Response {
	if any(answer) == any(TurnDone{}) {
		return Response{ID: c.Ident(), Command: c.Name(), Body: jsontext.Value(plainSuccess)}
	}
	return respond(c.Ident(), c.Name(), true, answer)
}

// FailureResponse is the response that refuses the command of that id and name. Text in it that is
// not UTF-8 is replaced.
func FailureResponse(id, command string, refusal Refusal) Response {
	return respond(id, command, false, refusal)
}

// plainSuccess is the body of a response without an answer, as most turns have it.
const plainSuccess = `{"ok":true}`

var replaceText = []json.Options{jsontext.AllowInvalidUTF8(true)} // made once

func respond(id, command string, ok bool, members any) Response {
	body, err := json.Marshal(members, replaceText...)
	if err != nil {
		panic(fmt.Sprintf("protocol: response to %s: %v", command, err)) // its values are ours
	}
	head := `{"ok":false}`
	if ok {
		head = `{"ok":true}`
	}
	return Response{ID: id, Command: command, Body: splice(append(make([]byte, 0, len(head)+len(body)), head...), body)}
}

// Refusal is what a response says that refuses its command; nil for any other.
func (r Response) Refusal() *Refusal {
	if gjson.GetBytes(r.Body, "ok").Type != gjson.False {
		return nil
	}
	var no Refusal
	if err := strict.Fill(r.Body, &no, strict.IgnoreUnknown); err != nil {
		return &Refusal{Error: "the refusal cannot be read: " + err.Error()}
	}
	return &no
}

func answer[R any](r Response) (R, error) {
	var members R
	err := strict.Fill(r.Body, &members, strict.IgnoreUnknown)
	return members, err
}

func (Prompt) Answer(r Response) (TurnDone, error)             { return answer[TurnDone](r) }
func (FollowUp) Answer(r Response) (TurnDone, error)           { return answer[TurnDone](r) }
func (Compact) Answer(r Response) (Compaction, error)          { return answer[Compaction](r) }
func (NewSession) Answer(r Response) (NewSessionAnswer, error) { return answer[NewSessionAnswer](r) }
func (GetMessages) Answer(r Response) (MessagesPage, error)    { return answer[MessagesPage](r) }
func (SetSettings) Answer(r Response) (SetSettingsAnswer, error) {
	return answer[SetSettingsAnswer](r)
}
func (SetToolOutput) Answer(r Response) (Acknowledged, error) { return answer[Acknowledged](r) }
func (Undo) Answer(r Response) (UndoAnswer, error)            { return answer[UndoAnswer](r) }
func (SetModel) Answer(r Response) (SetModelAnswer, error)    { return answer[SetModelAnswer](r) }
func (GetAvailableModels) Answer(r Response) (AvailableModels, error) {
	return answer[AvailableModels](r)
}
func (Abort) Answer(r Response) (TurnDone, error)        { return answer[TurnDone](r) }
func (GetSessionStats) Answer(r Response) (Stats, error) { return answer[Stats](r) }
func (GetState) Answer(r Response) (State, error)        { return answer[State](r) }
func (ToolsList) Answer(r Response) (ToolList, error)    { return answer[ToolList](r) }
func (Ping) Answer(r Response) (Acknowledged, error)     { return answer[Acknowledged](r) }
func (SetCwd) Answer(r Response) (SetCwdAnswer, error)   { return answer[SetCwdAnswer](r) }
func (SetPermissions) Answer(r Response) (SetPermissionsAnswer, error) {
	return answer[SetPermissionsAnswer](r)
}

func (RevokeAllowances) Answer(r Response) (RevokeAllowancesAnswer, error) {
	return answer[RevokeAllowancesAnswer](r)
}

func (GetNotes) Answer(r Response) (Notes, error) { return answer[Notes](r) }

func (ListJobs) Answer(r Response) (JobList, error) { return answer[JobList](r) }

func (SetSystemPrompt) Answer(r Response) (SetSystemPromptAnswer, error) {
	return answer[SetSystemPromptAnswer](r)
}

func (UpdateContext) Answer(r Response) (UpdateContextAnswer, error) {
	return answer[UpdateContextAnswer](r)
}
func (MCPConnect) Answer(r Response) (MCPAnswer, error)            { return answer[MCPAnswer](r) }
func (MCPDisconnect) Answer(r Response) (MCPAnswer, error)         { return answer[MCPAnswer](r) }
func (PermissionResponse) Answer(r Response) (Acknowledged, error) { return answer[Acknowledged](r) }

func (HostResult) Answer(r Response) (Acknowledged, error) { return answer[Acknowledged](r) }

func (c Compact) WithID(id string) Command            { c.ID = id; return c }
func (c NewSession) WithID(id string) Command         { c.ID = id; return c }
func (c Undo) WithID(id string) Command               { c.ID = id; return c }
func (c GetNotes) WithID(id string) Command           { c.ID = id; return c }
func (c GetMessages) WithID(id string) Command        { c.ID = id; return c }
func (c SetModel) WithID(id string) Command           { c.ID = id; return c }
func (c SetSettings) WithID(id string) Command        { c.ID = id; return c }
func (c SetToolOutput) WithID(id string) Command      { c.ID = id; return c }
func (c GetAvailableModels) WithID(id string) Command { c.ID = id; return c }
func (c Abort) WithID(id string) Command              { c.ID = id; return c }
func (c GetSessionStats) WithID(id string) Command    { c.ID = id; return c }
func (c GetState) WithID(id string) Command           { c.ID = id; return c }
func (c ToolsList) WithID(id string) Command          { c.ID = &id; return c }
func (c Ping) WithID(id string) Command               { c.ID = id; return c }
func (c SetCwd) WithID(id string) Command             { c.ID = id; return c }
func (c SetPermissions) WithID(id string) Command     { c.ID = id; return c }
func (c RevokeAllowances) WithID(id string) Command   { c.ID = id; return c }
func (c SetSystemPrompt) WithID(id string) Command    { c.ID = id; return c }
func (c UpdateContext) WithID(id string) Command      { c.ID = id; return c }
func (c ListJobs) WithID(id string) Command           { c.ID = id; return c }
func (c MCPConnect) WithID(id string) Command         { c.ID = id; return c }
func (c MCPDisconnect) WithID(id string) Command      { c.ID = id; return c }
func (c PermissionResponse) WithID(id string) Command { c.ID = id; return c }
