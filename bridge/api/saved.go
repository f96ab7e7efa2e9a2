package api

import (
	"strings"

	"nexus.internal/protocol"
)

// ProvenanceUser is the provenance of an agent that a person began.
const ProvenanceUser = "user"

// How many sessions a page of list_sessions has.
const (
	DefaultSessions = 50
	MaxSessions     = 1000
)

type (
	// ListSessionsParams select a page of the saved sessions.
	ListSessionsParams struct {
		// Index of the first session of the page. In a cluster, with limit at most 1000.
		Offset *uint64 `json:"offset,omitzero" default:"0"`
		// How many sessions at most.
		Limit *uint64 `json:"limit,omitzero" max:"1000" default:"50"`
		// Whether temporary and unnamed sessions are listed, too.
		IncludeTemp *bool `json:"include_temp,omitzero" default:"false"`
	}

	// ListSessionsResult is a page, the latest used first. Limit is the one that
	// was applied.
	ListSessionsResult struct {
		Total    uint64         `json:"total"`
		Offset   uint64         `json:"offset"`
		Limit    uint64         `json:"limit"`
		Sessions []SavedSession `json:"sessions"`
		// LastSession is the session that a person used last, perhaps a temporary one;
		// null if it is gone.
		LastSession *string `json:"last_session"`
		// UnreachableNodes are the machines of a cluster whose sessions are not among them.
		UnreachableNodes []string `json:"unreachable_nodes,omitzero"`
	}

	// SavedSession is one session of a list. Times are seconds since 1970.
	SavedSession struct {
		Name         string `json:"name"`
		Node         string `json:"node,omitzero"` // the machine of a cluster that has it
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
		// CwdLost and LostCwd are as in list_agents.
		CwdLost *string           `json:"cwd_lost,omitzero"`
		LostCwd *protocol.LostCwd `json:"lost_cwd,omitzero"`
		// Kind is that of an agent of another make.
		Kind *string `json:"kind,omitzero"`
		// Active says that its agent runs.
		Active bool `json:"active"`
		// Damaged says why the session cannot be read; "" if it can.
		Damaged string `json:"damaged,omitzero"`
	}

	// LoadSessionParams name a session, or ask for the last one.
	LoadSessionParams struct {
		// The session's name; it or last is needed.
		SessionName *string `json:"session_name,omitzero" audit:"text"`
		// The agent that continues the session; the default is the session's name. An agent of
		// another name gets a copy.
		AgentID *string `json:"agent_id,omitzero" audit:"text"`
		// Narrows the saved permissions. One that would widen them is an error:
		// set_permissions can do that.
		Preset *string `json:"preset,omitzero" audit:"text"`
		// Replaces the saved model.
		Model *string `json:"model,omitzero" audit:"text"`
		// Whether to load the session that a person used last.
		Last *bool `json:"last,omitzero" default:"false" audit:"-"`
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

	// SaveSessionParams name an agent, and the session to save it as.
	SaveSessionParams struct {
		// The agent's name.
		AgentID string `json:"agent_id" audit:"text"`
		// The name to save it under; the agent's own if missing.
		SessionName *string `json:"session_name,omitzero" audit:"text"`
	}

	// SaveSessionResult names the agent that continues the conversation: a
	// temporary one has the session's name now.
	SaveSessionResult struct {
		Saved       bool   `json:"saved"`
		SessionName string `json:"session_name"`
		AgentID     string `json:"agent_id"`
	}

	// CloneSessionParams name a session and its copy.
	CloneSessionParams struct {
		// The session that is copied.
		SrcSession string `json:"src_session" audit:"text"`
		// The name of the copy.
		DestSession string `json:"dest_session" audit:"text"`
	}

	// CloneSessionResult says that it was done.
	CloneSessionResult struct {
		Cloned      bool   `json:"cloned"`
		SrcSession  string `json:"src_session"`
		DestSession string `json:"dest_session"`
	}

	// RenameSessionParams name a session and its new name.
	RenameSessionParams struct {
		// The session's name.
		OldName string `json:"old_name" audit:"text"`
		// The new name.
		NewName string `json:"new_name" audit:"text"`
	}

	// RenameSessionResult says that it was done.
	RenameSessionResult struct {
		Renamed bool   `json:"renamed"`
		OldName string `json:"old_name"`
		NewName string `json:"new_name"`
	}

	// DeleteSessionParams name a session.
	DeleteSessionParams struct {
		// The session's name.
		SessionName string `json:"session_name" audit:"text"`
	}

	// DeleteSessionResult has Deleted false if there was no such session.
	DeleteSessionResult struct {
		Deleted     bool   `json:"deleted"`
		SessionName string `json:"session_name"`
	}

	// AgentSummariesParams say how much is told; both are true if missing.
	AgentSummariesParams struct {
		// Whether a summary has the use of the context window.
		IncludeTokens *bool `json:"include_tokens,omitzero" default:"true"`
		// Whether a summary has the state of the conversation.
		IncludeContext *bool `json:"include_context,omitzero" default:"true"`
	}

	// AgentSummariesResult is every agent that the server, or its cluster, runs, sorted by id.
	AgentSummariesResult struct {
		Agents           []AgentSummary `json:"agents"`
		UnreachableNodes []string       `json:"unreachable_nodes,omitzero"` // machines whose agents are not among them
	}

	// AgentSummary is how one agent stands, by what its process said last: null
	// until it has said something.
	AgentSummary struct {
		AgentID         string  `json:"agent_id"`
		Node            string  `json:"node,omitzero"` // the machine of a cluster that has it
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

func checkName(param, name string) error {
	if !ValidAgentID(name) {
		return Invalid(param, wantName)
	}
	return nil
}

func checkKept(param, name string) error {
	if IsTemp(name) {
		return Invalid(param, "a name that begins with a dot is not saved")
	}
	return checkName(param, name)
}

func (p LoadSessionParams) check() error {
	last := protocol.Value(p.Last)
	switch {
	case p.SessionName == nil && !last:
		return missing("session_name")
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

func (p SaveSessionParams) check() error {
	if err := checkName("agent_id", p.AgentID); err != nil {
		return err
	}
	if p.SessionName == nil {
		return checkKept("session_name", p.AgentID)
	}
	return checkKept("session_name", *p.SessionName)
}

func (p ForkParams) check() error {
	if err := checkName("agent_id", p.AgentID); err != nil {
		return err
	}
	return checkKept("new_agent_id", p.NewAgentID)
}

func (p CloneSessionParams) check() error {
	if err := checkName("src_session", p.SrcSession); err != nil {
		return err
	}
	return checkKept("dest_session", p.DestSession)
}

func (p RenameSessionParams) check() error {
	if err := checkName("old_name", p.OldName); err != nil {
		return err
	}
	return checkKept("new_name", p.NewName)
}

func (p DeleteSessionParams) check() error { return checkName("session_name", p.SessionName) }
