package bridge

import (
	"context"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// access says which agents there are and who may ask what of them: the one place for all
// calls.
type access struct{ s *Server }

// Find implements [rpc.Access].
func (a access) Find(id string) error {
	if _, err := a.s.o.Supervisor.Agent(id); err != nil && !a.s.o.Sessions.Exists(id) {
		return rpc.AgentNotFound(id, supervisor.ErrNotFound)
	}
	return nil
}

// Permit implements [rpc.Access].
func (a access) Permit(ctx context.Context, c *rpc.Call, m api.Method) error {
	if c.By.Agent != nil {
		return a.s.permitAgent(ctx, *c.By.Agent, m, c.Agent)
	}
	if err := c.By.MayCall(m); err != nil {
		return err
	}
	return a.s.checkStart(c.By, c.Agent, true)
}

// Resolve implements [events.Agents].
func (a access) Resolve(ctx context.Context, id string) (*supervisor.Agent, error) {
	return a.s.agent(ctx, id)
}

// CheckStart implements [events.Agents].
func (a access) CheckStart(p rpc.Principal, id string, ask bool) error {
	return a.s.checkStart(p, id, ask)
}

// permitAgent reports why an agent may not call the method for the target.
func (s *Server) permitAgent(ctx context.Context, from supervisor.Caller, m api.Method, target string) error {
	switch m.Agents {
	case api.AnyAgent:
		return nil
	case api.Created:
		if _, err := s.o.Supervisor.Agent(target); err != nil {
			return rpc.AgentNotFound(target, supervisor.ErrNotFound)
		}
		if !s.descends(target, from.AgentID) {
			return api.Denied("%s did not create %s: %s is for agents that one has created", from.AgentID, target, m.Name)
		}
		return nil
	case api.Awake, api.Peers:
		if err := s.checkAwake(from.AgentID, target); err != nil || m.Agents == api.Awake {
			return err
		}
		other, err := s.agent(ctx, target)
		if err != nil {
			return err
		}
		return s.checkPeer(ctx, from.AgentID, other)
	case api.Unrestricted:
		return s.checkYolo(ctx, from.AgentID)
	default:
		panic(fmt.Sprintf("bridge: %s is not for agents", m.Name))
	}
}

// checkStart says why a principal is not good enough for an agent whose process would be
// started for it, nil if it is: to ask it something, or to follow its events.
func (s *Server) checkStart(p rpc.Principal, id string, ask bool) error {
	if p.Grant.Scope != auth.ScopeRead {
		return nil
	}
	a, err := s.o.Supervisor.Agent(id)
	starts := s.o.Sessions.Exists(id)
	if err == nil {
		starts = ask && a.Info().State == supervisor.Stopped
	}
	if !starts {
		return nil
	}
	return api.Denied("the key is good for reading alone, and %s does not run: it would be started", id)
}
