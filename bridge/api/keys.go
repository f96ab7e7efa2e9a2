package api

import (
	"strings"
	"unicode"
)

// Bounds of keys (SPEC §6.5).
const (
	maxGrace   = 86_400      // seconds, a day
	maxExpires = 315_360_000 // seconds, ten years
	maxKeyName = 64          // bytes
)

type (
	// CreateKeyParams are those of create_key.
	CreateKeyParams struct {
		Scope   string  `json:"scope" enum:"read,agent"` // read or agent
		AgentID *string `json:"agent_id,omitempty"`      // of scope agent, and of no other
		// MayGrant lets a key of scope agent widen what the agent may do, up to what
		// its owner granted, approve its calls and start MCP servers; without it, the
		// key only narrows.
		MayGrant *bool `json:"may_grant,omitempty"`
		// ExpiresSeconds is how long it is good; nil is for ever.
		ExpiresSeconds *uint64 `json:"expires_s,omitempty"`
		Name           *string `json:"name,omitempty"` // for people
	}

	// KeyInfo is a scoped key without the key. Times are RFC 3339.
	KeyInfo struct {
		KeyID     string  `json:"key_id"`                  // 12 hexadecimal digits
		Scope     string  `json:"scope" enum:"read,agent"` // read or agent
		AgentID   *string `json:"agent_id"`
		MayGrant  bool    `json:"may_grant"`
		Name      *string `json:"name"`
		CreatedAt string  `json:"created_at"`
		ExpiresAt *string `json:"expires_at"`
	}

	// CreateKeyResult is the only place that ever shows the key.
	CreateKeyResult struct {
		Key string `json:"key"`
		KeyInfo
	}

	// ListKeysResult is the result of list_keys, the oldest first.
	ListKeysResult struct {
		Keys []KeyInfo `json:"keys"`
	}

	// RevokeKeyParams are those of revoke_key.
	RevokeKeyParams struct {
		KeyID string `json:"key_id"`
	}

	// RevokeKeyResult is the result of revoke_key; Revoked is false if there was
	// none.
	RevokeKeyResult struct {
		Revoked bool   `json:"revoked"`
		KeyID   string `json:"key_id"`
	}

	// CreatePageCodeResult is a code that opens the page once, as its URL does.
	CreatePageCodeResult struct {
		Code             string `json:"code"`
		URL              string `json:"url"`
		ExpiresInSeconds uint64 `json:"expires_in_s"`
	}

	// RotateKeyParams are those of rotate_key.
	RotateKeyParams struct {
		// GraceSeconds is how long the old key stays good; nil is 0.
		GraceSeconds *uint64 `json:"grace_s,omitempty"`
	}

	// RotateKeyResult says where the new key is, and never what it is.
	RotateKeyResult struct {
		Rotated bool   `json:"rotated"` // true
		KeyID   string `json:"key_id"`
		KeyFile string `json:"key_file"`
	}
)

// Check finds what the types do not.
func (p CreateKeyParams) Check() error {
	switch p.Scope {
	case "read":
		if p.AgentID != nil {
			return Invalid("agent_id", "is for the scope agent alone")
		}
		if p.MayGrant != nil {
			return Invalid("may_grant", "is for the scope agent alone")
		}
	case "agent":
		if p.AgentID == nil {
			return &ParamError{Param: "agent_id", Problem: "Missing required parameter: agent_id"}
		}
		if !ValidAgentID(*p.AgentID) {
			return Invalid("agent_id", "is no agent id")
		}
	default:
		return Invalid("scope", "must be read or agent")
	}
	if e := p.ExpiresSeconds; e != nil && (*e == 0 || *e > maxExpires) {
		return Invalid("expires_s", "must be from 1 to %d", maxExpires)
	}
	if n := Value(p.Name); len(n) > maxKeyName || strings.ContainsFunc(n, unicode.IsControl) {
		return Invalid("name", "must have at most %d bytes and no control characters", maxKeyName)
	}
	return nil
}

// Check finds what the types do not.
func (p RotateKeyParams) Check() error {
	if Value(p.GraceSeconds) > maxGrace {
		return Invalid("grace_s", "must be at most %d", maxGrace)
	}
	return nil
}
