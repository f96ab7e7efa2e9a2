package agents

import (
	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// AgentSpec is the agent to start: what was asked for, completed by what its parent and its
// saved session decide. It is made once and handed down.
type AgentSpec struct {
	// CreateAgentParams are what was asked for; AgentID is always set.
	api.CreateAgentParams
	// Ceiling is what the agent's permissions cannot exceed: those of its parent. Nil is no
	// bound.
	Ceiling *protocol.Permissions
	// Depth is how many agents are above it.
	Depth uint64
	// Restored says that it goes on with a saved session.
	Restored bool
	// Ancestors are the agents above ParentAgentID, the nearest first, of one that goes on.
	Ancestors []string
}
