package agents

import (
	"context"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

var _ rpc.Access = (*Registry)(nil)

// Find implements [rpc.Access].
func (r *Registry) Find(id string) error {
	if _, err := r.o.Supervisor.Agent(id); err != nil && !r.o.Sessions.Exists(id) {
		return rpc.AgentNotFound(id, supervisor.ErrNotFound)
	}
	return nil
}

// Permit implements [rpc.Access]: the one place that says who may ask what of which agent.
func (r *Registry) Permit(ctx context.Context, c *rpc.Call, m api.Method) error {
	if c.By.Agent != nil {
		return r.permitAgent(ctx, *c.By.Agent, m, c.Agent)
	}
	if err := c.By.MayCall(m); err != nil {
		return err
	}
	return r.CheckStart(c.By, c.Agent, true)
}

// permitAgent reports why an agent may not call the method for the target.
func (r *Registry) permitAgent(ctx context.Context, from supervisor.Caller, m api.Method, target string) error {
	switch m.Agents {
	case api.AnyAgent:
		return nil
	case api.Created:
		if _, err := r.o.Supervisor.Agent(target); err != nil {
			return rpc.AgentNotFound(target, supervisor.ErrNotFound)
		}
		if !r.Descends(target, from.AgentID) {
			return api.Denied("%s did not create %s: %s is for agents that one has created", from.AgentID, target, m.Name)
		}
		return nil
	case api.Awake, api.Peers:
		if err := r.checkAwake(from.AgentID, target); err != nil || m.Agents == api.Awake {
			return err
		}
		other, err := r.Resolve(ctx, target)
		if err != nil {
			return err
		}
		return r.CheckPeer(ctx, from.AgentID, other)
	case api.Unrestricted:
		return r.checkUnrestricted(ctx, from.AgentID)
	default:
		panic(fmt.Sprintf("agents: %s is not for agents", m.Name))
	}
}

// CheckStart says why a principal is not good enough for an agent whose process would be
// started for it, nil if it is: to ask it something, or to follow its events.
func (r *Registry) CheckStart(p rpc.Principal, id string, ask bool) error {
	if p.Grant.Scope != auth.ScopeRead {
		return nil
	}
	a, err := r.o.Supervisor.Agent(id)
	starts := r.o.Sessions.Exists(id)
	if err == nil {
		starts = ask && a.Info().State == supervisor.Stopped
	}
	if !starts {
		return nil
	}
	return api.Denied("the key is good for reading alone, and %s does not run: it would be started", id)
}
