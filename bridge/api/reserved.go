package api

import (
	"slices"
	"strings"
)

// The roles that a configuration can give to agents (SPEC §6.7).
const (
	RolePlanner  = "planner"
	RoleExecutor = "executor"
)

// PlanPrefix begins the names of agents that carry out a plan.
const PlanPrefix = ".plan-"

// CheckReserved is NOT_PERMITTED if nobody but the server may give an agent or a session
// that name: it is a role's, or one of roleAgents, the agents of the configured roles, also
// where no such agent is there yet, or one that run_plan gives. Whoever took it before the
// server does would get what is meant for the role.
func CheckReserved(id string, roleAgents ...string) error {
	if strings.HasPrefix(id, PlanPrefix) || id == RolePlanner || id == RoleExecutor || slices.Contains(roleAgents, id) {
		return Denied("%s is a reserved name: the server itself creates the agent of a role or of a plan; choose another name", id)
	}
	return nil
}
