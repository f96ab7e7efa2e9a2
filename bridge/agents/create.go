package agents

import (
	"context"
	"errors"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Origin says where the agent of a create_agent call came from.
type Origin string

const (
	IsNew      Origin = ""
	WasSaved   Origin = "saved"   // it continues a saved session
	WasRunning Origin = "running" // if_exists "use": the server had it already
)

// CreateFor creates an agent that nobody asked for by name, and audits that.
func (r *Registry) CreateFor(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (a *supervisor.Agent, err error) {
	end := c.OnBehalf(api.CreateAgent.Name, p)
	a, _, err = r.create(ctx, c, p, parent{})
	end(err)
	return a, err
}

// Create starts a new agent, continues a saved one, or finds one that runs where
// that is asked for and it is as p asks for.
func (r *Registry) Create(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (*supervisor.Agent, Origin, error) {
	if err := r.Access().asked(c, &p); err != nil {
		return nil, IsNew, err
	}
	up, err := r.Access().parentOf(ctx, p)
	if err != nil {
		return nil, IsNew, err
	}
	a, from, err := r.create(ctx, c, p, up)
	if err != nil {
		return nil, IsNew, err
	}
	if from != IsNew {
		c.Note("existed", string(from))
	}
	if from == WasRunning {
		return a, from, r.CheckSame(ctx, a, p)
	}
	return a, from, r.removeIfAbandoned(ctx, c, a, up.agent)
}

func (r *Registry) create(ctx context.Context, c *rpc.Call, p api.CreateAgentParams, up parent) (*supervisor.Agent, Origin, error) {
	if c.By.Agent != nil {
		if err := mayHave(r, c.By.Agent.AgentID, p); err != nil {
			return nil, IsNew, err
		}
		if err := checkWalls(r, c.By.Agent.AgentID, p, up); err != nil {
			return nil, IsNew, err
		}
		if p.Kind != nil { // also one that a plan of its makes
			p.Sandbox = new(true)
		}
	}
	if c.By.Grant.Replaced() {
		if err := checkReplaced(r, p); err != nil {
			return nil, IsNew, err
		}
	}
	id := *p.AgentID
	defer r.locks.Lock(id)()
	a, err := r.o.Supervisor.Agent(id)
	switch {
	case err != nil: // it does not run
	case protocol.Value(p.IfExists) != api.IfExistsUse:
		return nil, IsNew, rpc.AgentExists(id)
	case c.By.Agent != nil && a.Info().Labels.Parent != c.By.Agent.AgentID: // it gets its own alone
		return nil, IsNew, api.Denied("%s did not create %s: choose another name, or send to it", c.By.Agent.AgentID, id)
	default:
		return a, WasRunning, nil
	}
	if c.By.Agent != nil && r.last.is(id) {
		return nil, IsNew, api.Denied("%s is what a person used last: choose another name", id)
	}
	if err := prepare(ctx, r, id); err != nil {
		return nil, IsNew, err
	}
	// What an earlier temporary agent of that name left is not this one's.
	if err := r.o.Sessions.RemoveTemp(id); err != nil {
		return nil, IsNew, err
	}
	from := IsNew
	if r.o.Sessions.Exists(id) {
		if err := claimFound(ctx, r, id); errors.Is(err, supervisor.ErrNotFound) {
			from = IsNew
		} else if e, ok := errors.AsType[*rpc.ClaimedError](err); ok {
			return nil, IsNew, claimedElsewhere(e)
		} else if err != nil {
			return nil, IsNew, err
		} else {
			from = WasSaved
		}
	}
	if from == WasSaved && c.By.Agent != nil {
		return nil, IsNew, api.Denied("there is a saved agent %s: to go on with it is for people; choose another name, or send to it", id)
	}
	a, err = r.start(ctx, p, up)
	return a, from, err
}
