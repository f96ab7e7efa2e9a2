package agents

import (
	"errors"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
)

// PlanPrefix begins the names of agents that carry out a plan.
const PlanPrefix = ".plan-"

// CheckName is NOT_PERMITTED if no client and no agent may give an agent or a session
// that name: it is a role's, or that of the agent of a configured role, also where no
// such agent is there yet, or one that run_plan gives. Whoever took it before the server
// does would get what is meant for the role.
func (r *Registry) CheckName(id string) error {
	reserved := strings.HasPrefix(id, PlanPrefix) || id == string(Planner) || id == string(Executor)
	for _, p := range r.settings.Load().Roles {
		reserved = reserved || id == protocol.Value(p.AgentID)
	}
	if !reserved {
		return nil
	}
	return api.Denied("%s is a reserved name: the server itself creates the agent of a role or of a plan; choose another name", id)
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
