package agents

import (
	"errors"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
)

// CheckName is api.CheckReserved with the roles that are configured.
func (r *Registry) CheckName(id string) error {
	var roleAgents []string
	for _, p := range r.settings.Load().Roles {
		roleAgents = append(roleAgents, protocol.Value(p.AgentID))
	}
	return api.CheckReserved(id, roleAgents...)
}

// CheckRole is NOT_PERMITTED if the agent that a role is to have was begun by another
// agent, running or saved: its prompt and its permissions are that one's choice.
func (r *Registry) CheckRole(role Role, id string) error {
	creator := ""
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		creator = a.Info().Labels.Provenance
	} else if saved, err := r.o.Sessions.Summary(id); err == nil {
		creator = protocol.Value(saved.Settings.ParentAgentID)
	} else if !errors.Is(err, sessions.ErrNotFound) {
		return nil // its start says what is wrong with it
	}
	if creator == "" {
		return nil
	}
	return api.Denied("agent %s, which is to be the %s, was created by agent %s: rename it or delete its session, and the server creates another", id, role, creator)
}
