package api

import "strings"

// ProvenanceUser is the provenance of what a person began.
const ProvenanceUser = "user"

// How many sessions a page of list_sessions has.
const (
	DefaultSessions = 50
	MaxSessions     = 1000
)

type (
	// ListSessionsParams select a page of the saved sessions.
	ListSessionsParams struct {
		Offset *uint64 `json:"offset,omitzero"` // of the first; default 0
		// Limit is how many: DefaultSessions if missing, at most MaxSessions.
		Limit *uint64 `json:"limit,omitzero"`
		// IncludeTemp asks for those of temporary agents too.
		IncludeTemp *bool `json:"include_temp,omitzero"`
	}

	// ListSessionsResult is a page, the latest used first. Limit is the one that
	// was applied.
	ListSessionsResult struct {
		Total    uint64         `json:"total"`
		Offset   uint64         `json:"offset"`
		Limit    uint64         `json:"limit"`
		Sessions []SavedSession `json:"sessions"`
		// LastSession is what a person used last, temporary perhaps; null if it is
		// gone.
		LastSession *string `json:"last_session"`
	}

	// SavedSession is one session of a list. Times are seconds since 1970.
	SavedSession struct {
		Name         string `json:"name"`
		MessageCount uint64 `json:"message_count"`
		// CreatedAt is null where the session is damaged.
		CreatedAt *float64 `json:"created_at"`
		UpdatedAt float64  `json:"updated_at"`
		IsTemp    bool     `json:"is_temp"`
		// Provenance is ProvenanceUser, or the agent that began it.
		Provenance      string  `json:"provenance"`
		Model           *string `json:"model"`
		PermissionLevel *string `json:"permission_level"`
		Cwd             *string `json:"cwd"`
		// Active says that its agent runs.
		Active bool `json:"active"`
		// Damaged says why the session cannot be read; "" if it can.
		Damaged string `json:"damaged,omitzero"`
	}

	// LoadSessionParams name a session, or ask for the last one.
	LoadSessionParams struct {
		SessionName *string `json:"session_name,omitzero"`
		// AgentID is the agent that goes on with it: the one of its name, or
		// another, which gets a copy.
		AgentID *string `json:"agent_id,omitzero"`
		// Preset narrows what was saved, and Model takes the place of it.
		Preset *string `json:"preset,omitzero"`
		Model  *string `json:"model,omitzero"`
		// Last asks for the session that a person used last.
		Last *bool `json:"last,omitzero"`
	}

	// LoadSessionResult has Restored false if the last session's agent runs
	// already.
	LoadSessionResult struct {
		Restored     bool   `json:"restored"`
		AgentID      string `json:"agent_id"`
		MessageCount uint64 `json:"message_count"`
		// NarrowedFrom is "yolo" if the session has that preset and the agent was
		// started as trusted, since no request grants yolo.
		NarrowedFrom string `json:"narrowed_from,omitzero"`
	}

	// SaveSessionParams name an agent, and what to save it as: itself if missing.
	SaveSessionParams struct {
		AgentID     string  `json:"agent_id"`
		SessionName *string `json:"session_name,omitzero"`
	}

	// SaveSessionResult says which agent goes on with the conversation: a
	// temporary one has the session's name now.
	SaveSessionResult struct {
		Saved       bool   `json:"saved"`
		SessionName string `json:"session_name"`
		AgentID     string `json:"agent_id"`
	}

	// CloneSessionParams name a session and its copy.
	CloneSessionParams struct {
		SrcSession  string `json:"src_session"`
		DestSession string `json:"dest_session"`
	}

	// CloneSessionResult says that it was done.
	CloneSessionResult struct {
		Cloned      bool   `json:"cloned"`
		SrcSession  string `json:"src_session"`
		DestSession string `json:"dest_session"`
	}

	// RenameSessionParams name a session and what it is to be called.
	RenameSessionParams struct {
		OldName string `json:"old_name"`
		NewName string `json:"new_name"`
	}

	// RenameSessionResult says that it was done.
	RenameSessionResult struct {
		Renamed bool   `json:"renamed"`
		OldName string `json:"old_name"`
		NewName string `json:"new_name"`
	}

	// DeleteSessionParams name a session.
	DeleteSessionParams struct {
		SessionName string `json:"session_name"`
	}

	// DeleteSessionResult has Deleted false if there was no such session.
	DeleteSessionResult struct {
		Deleted     bool   `json:"deleted"`
		SessionName string `json:"session_name"`
	}

	// AgentSummariesParams say how much is told; both are true if missing.
	AgentSummariesParams struct {
		IncludeTokens *bool `json:"include_tokens,omitzero"`
		// IncludeContext asks for what a summary has of the conversation.
		IncludeContext *bool `json:"include_context,omitzero"`
	}

	// AgentSummariesResult is every agent that the server runs, sorted by id.
	AgentSummariesResult struct {
		Agents []AgentSummary `json:"agents"`
	}

	// AgentSummary is how one agent stands, by what its process said last: null
	// until it has said something.
	AgentSummary struct {
		AgentID         string  `json:"agent_id"`
		Cwd             *string `json:"cwd"`
		PermissionLevel *string `json:"permission_level"`
		Model           *string `json:"model"`
		*SummaryContext
		Tokens *SummaryTokens `json:"tokens,omitzero"`
	}

	// SummaryContext is how a conversation stands.
	SummaryContext struct {
		MessageCount           uint64  `json:"message_count"`
		HaltedAtIterationLimit bool    `json:"halted_at_iteration_limit"`
		LastActionAt           *string `json:"last_action_at"` // RFC 3339, UTC; null before the first turn
	}

	// SummaryTokens is how a context window is used, in tokens.
	SummaryTokens struct {
		Total  uint64 `json:"total"`
		Budget uint64 `json:"budget"`
	}
)

// checkName finds what cannot be the name of an agent or a session.
func checkName(param, name string) error {
	if !ValidAgentID(name) {
		return Invalid(param, wantName)
	}
	return nil
}

// checkKept finds what cannot be the name of a session that is kept.
func checkKept(param, name string) error {
	if IsTemp(name) {
		return Invalid(param, "a name that begins with a dot is not saved")
	}
	return checkName(param, name)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p LoadSessionParams) Check() error {
	last := Value(p.Last)
	switch {
	case p.SessionName == nil && !last:
		return &ParamError{Param: "session_name", Problem: "Missing required parameter: session_name"}
	case p.SessionName != nil && last:
		return Invalid("last", "session_name says already which one")
	}
	for _, one := range []struct {
		name  string
		value *string
	}{{"session_name", p.SessionName}, {"agent_id", p.AgentID}} {
		if one.value != nil {
			if err := checkName(one.name, *one.value); err != nil {
				return err
			}
		}
	}
	if p.Model != nil && (*p.Model == "" || strings.ContainsFunc(*p.Model, control)) {
		return Invalid("model", "is empty or contains a control character")
	}
	if p.Preset != nil {
		return checkPreset(*p.Preset)
	}
	return nil
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p SaveSessionParams) Check() error {
	if err := checkName("agent_id", p.AgentID); err != nil {
		return err
	}
	if p.SessionName == nil {
		return checkKept("session_name", p.AgentID)
	}
	return checkKept("session_name", *p.SessionName)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p CloneSessionParams) Check() error {
	if err := checkName("src_session", p.SrcSession); err != nil {
		return err
	}
	return checkKept("dest_session", p.DestSession)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p RenameSessionParams) Check() error {
	if err := checkName("old_name", p.OldName); err != nil {
		return err
	}
	return checkKept("new_name", p.NewName)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p DeleteSessionParams) Check() error { return checkName("session_name", p.SessionName) }

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p ListSessionsParams) Check() error {
	if n := Value(p.Limit); n > MaxSessions {
		return Invalid("limit", "want at most %d, have %d", MaxSessions, n)
	}
	return nil
}
