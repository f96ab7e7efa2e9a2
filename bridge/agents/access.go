package agents

import (
	"context"
	"errors"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Access says which caller may call which method of which agent.
type Access struct{ r *Registry }

var _ rpc.Access = Access{}

// Access is the registry's rules.
func (r *Registry) Access() Access { return Access{r} }

// Resolve is [Registry.Resolve].
func (a Access) Resolve(ctx context.Context, id string) (*supervisor.Agent, error) {
	return a.r.Resolve(ctx, id)
}

// Certain reports why a machine of a cluster may not know of all that has become of an agent that it has: NO_QUORUM, or NODE_UNREACHABLE if another
// machine has it by now.
func (a Access) Certain(id string) error {
	if a.r.o.Claims == nil {
		return nil
	}
	if err := a.r.o.Claims.Check(); err != nil {
		return NoQuorum(err, "which machine has %s is not certain", id)
	}
	if owner, known := a.r.o.Claims.Owner(id); known && owner != a.r.o.Claims.Self() {
		return hasByNow(&rpc.ClaimedError{Agent: id, Machine: owner})
	}
	return nil
}

func (a Access) Find(id string) error {
	if there(a.r, id) {
		return nil
	}
	if err := a.Certain(id); err != nil {
		return err
	}
	if ours(a.r, id) { // it may just come here from another machine
		defer a.r.locks.Lock(id)()
		if err := prepare(context.Background(), a.r, id); err != nil {
			return err
		}
		if there(a.r, id) {
			return nil
		}
	}
	return notFound(a.r, id)
}

// Permit implements [rpc.Access]: the one place that says who may ask what of which agent, by
// the method's row (Effect, Agents, Grant). How far a change may go is [rpc.Call.Bound]'s; which
// agents a new one may have for its parent, [Access.parentOf]'s.
func (a Access) Permit(ctx context.Context, c *rpc.Call, m api.Method) error {
	if c.By.Agent != nil {
		return a.permitAgent(ctx, c.By, m, c.Agent)
	}
	if err := c.By.MayCall(m); err != nil {
		return err
	}
	if c.Bound() == protocol.WithinHeld && m.Grant.By(c.Request.Params) {
		return api.Denied("the key is good for agent %s and only narrows what it may do: to %s wants a key made with may_grant", c.By.Grant.AgentID, m.Grant.Act)
	}
	return a.CheckStart(c.By, c.Agent, true)
}

func (a Access) Root(id string) string {
	for range maxDepth + 1 {
		parent, err := a.r.o.Supervisor.Agent(id)
		if err != nil || parent.Info().Labels.Parent == "" {
			break
		}
		id = parent.Info().Labels.Parent
	}
	return id
}

// permitAgent reports why an agent may not call the method for the target.
func (a Access) permitAgent(ctx context.Context, by rpc.Principal, m api.Method, target string) error {
	from := by.Agent
	switch m.Agents {
	case api.AnyAgent:
		return nil
	case api.Created:
		if !there(a.r, target) {
			if machine := elsewhere(a.r, target); machine != "" { // a method of an agent is that machine's to permit
				return api.Denied("the machine %s has %s: an agent can ask for %s of agents on its own machine alone", machine, target, m.Name)
			}
			return rpc.AgentNotFound(target, supervisor.ErrNotFound)
		}
		if _, err := a.r.o.Supervisor.Agent(target); err != nil {
			return api.Denied("%s is saved and does not run: %s is for agents that run, and that one has created", target, m.Name)
		}
		if !a.r.Descends(target, from.AgentID) {
			return api.Denied("%s did not create %s: %s is for agents that one has created", from.AgentID, target, m.Name)
		}
		return nil
	case api.Awake, api.Peers:
		if err := a.checkAwake(from.AgentID, target); err != nil || m.Agents == api.Awake {
			return err
		}
		other, err := a.r.Resolve(ctx, target)
		if err != nil {
			return err
		}
		return a.CheckPeer(ctx, by, other)
	case api.Unrestricted:
		return a.checkUnrestricted(ctx, from.AgentID)
	default:
		panic(fmt.Sprintf("agents: %s is not for agents", m.Name))
	}
}

// CheckStart says why a principal is not good enough for an agent whose process would be
// started for it, nil if it is: to ask it something, or to follow its events.
func (a Access) CheckStart(p rpc.Principal, id string, ask bool) error {
	if p.Grant.Scope != auth.ScopeRead {
		return nil
	}
	agent, err := a.r.o.Supervisor.Agent(id)
	starts := a.r.o.Sessions.Exists(id)
	if err == nil {
		starts = ask && agent.Info().State == supervisor.Stopped
	}
	if !starts {
		return nil
	}
	return api.Denied("the key is good for reading alone, and %s does not run: it would be started", id)
}

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
