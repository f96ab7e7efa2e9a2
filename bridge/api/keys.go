package api

import (
	"strings"
	"unicode"

	"nexus.internal/protocol"
)

type (
	// CreateKeyParams are those of create_key.
	CreateKeyParams struct {
		// The scope: only reading (read), or one agent (agent).
		Scope string `json:"scope" enum:"read,agent" audit:"text"`
		// The agent; only for scope agent, and required there.
		AgentID *string `json:"agent_id,omitempty" audit:"text"`
		// Whether a key of scope agent may widen the agent's permissions up to the owner's
		// grant, approve its calls and start MCP servers. Other keys only narrow them.
		MayGrant *bool `json:"may_grant,omitempty" default:"false" audit:"rule"`
		// How long the key is valid, in seconds; for ever if missing.
		ExpiresSeconds *uint64 `json:"expires_s,omitempty" min:"1" max:"315360000" unit:"seconds" audit:"rule"`
		// A name for people, without control characters.
		Name *string `json:"name,omitempty" max:"64" audit:"text"`
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

	// CreateKeyResult is the only message that contains the key.
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
		// The key's id, as list_keys has it.
		KeyID string `json:"key_id" audit:"text"`
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
		// How long the old key stays valid, in seconds.
		GraceSeconds *uint64 `json:"grace_s,omitempty" max:"86400" unit:"seconds" default:"0" audit:"rule"`
	}

	// RotateKeyResult names the file of the new key, and does not contain the key.
	RotateKeyResult struct {
		Rotated bool   `json:"rotated"` // true
		KeyID   string `json:"key_id"`
		KeyFile string `json:"key_file"`
	}
)

func (p CreateKeyParams) check() error {
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
			return missing("agent_id")
		}
		if err := CheckAgentID(*p.AgentID); err != nil {
			return err
		}
	}
	if strings.ContainsFunc(protocol.Value(p.Name), unicode.IsControl) {
		return Invalid("name", "want no control characters")
	}
	return nil
}
