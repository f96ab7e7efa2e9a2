package agents

import (
	"context"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// Access says who may ask what of which agent.
type Access struct{ r *Registry }

var _ rpc.Access = Access{}

// Access is the registry's rules.
func (r *Registry) Access() Access { return Access{r} }

// Resolve is [Registry.Resolve].
func (a Access) Resolve(ctx context.Context, id string) (*supervisor.Agent, error) {
	return a.r.Resolve(ctx, id)
}

// Find implements [rpc.Access].
func (a Access) Find(id string) error {
	if _, err := a.r.o.Supervisor.Agent(id); err != nil && !a.r.o.Sessions.Exists(id) {
		return rpc.AgentNotFound(id, supervisor.ErrNotFound)
	}
	return nil
}

// Permit implements [rpc.Access]: the one place that says who may ask what of which agent.
func (a Access) Permit(ctx context.Context, c *rpc.Call, m api.Method) error {
	if c.By.Agent != nil {
		return a.permitAgent(ctx, *c.By.Agent, m, c.Agent)
	}
	if err := c.By.MayCall(m); err != nil {
		return err
	}
	return a.CheckStart(c.By, c.Agent, true)
}

// permitAgent reports why an agent may not call the method for the target.
func (a Access) permitAgent(ctx context.Context, from supervisor.Caller, m api.Method, target string) error {
	switch m.Agents {
	case api.AnyAgent:
		return nil
	case api.Created:
		if _, err := a.r.o.Supervisor.Agent(target); err != nil {
			return rpc.AgentNotFound(target, supervisor.ErrNotFound)
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
		return a.CheckPeer(ctx, from.AgentID, other)
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
