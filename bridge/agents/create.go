package agents

import (
	"cmp"
	"context"
	"errors"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// RemoveIfAbandoned destroys a new agent if the one that it was made for has gone
// meanwhile, or does not want it any more. The error says that.
func (r *Registry) RemoveIfAbandoned(ctx context.Context, c *rpc.Call, a, parent *supervisor.Agent) error {
	var gone error
	if parent != nil {
		if now, err := r.o.Supervisor.Agent(parent.ID()); err != nil || now != parent {
			gone = api.Invalid("parent_agent_id", "agent %s was destroyed meanwhile", parent.ID())
		}
	}
	if c.By.Agent != nil && ctx.Err() != nil {
		gone = context.Cause(ctx)
	}
	if gone == nil {
		return nil
	}
	return errors.Join(gone, r.DestroyFor(ctx, c, a.ID()))
}

// CreateFor creates an agent that nobody asked for by name, and audits that.
func (r *Registry) CreateFor(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (a *supervisor.Agent, err error) {
	err = c.OnBehalf(api.CreateAgent.Name, p, func() error {
		a, _, err = r.Create(ctx, c, AgentSpec{CreateAgentParams: p})
		return err
	})
	return a, err
}

// DestroyFor destroys an agent that nobody asked for by name, and audits that; it
// is no error if there is none.
func (r *Registry) DestroyFor(ctx context.Context, c *rpc.Call, id string) error {
	return c.OnBehalf(api.DestroyAgent.Name, api.AgentIDParams{AgentID: id}, func() error {
		if err := r.Destroy(ctx, c, id); !errors.Is(err, supervisor.ErrNotFound) {
			return err
		}
		return nil
	})
}

// Create starts a new agent, continues a saved one, or finds one that runs where
// that is asked for.
func (r *Registry) Create(ctx context.Context, c *rpc.Call, p AgentSpec) (*supervisor.Agent, Origin, error) {
	id := *p.AgentID
	defer r.locks.Lock(id)()
	a, err := r.useExisting(c, p.CreateAgentParams)
	if !errors.Is(err, supervisor.ErrNotFound) {
		return a, WasRunning, err
	}
	if c.By.Agent != nil && r.last.is(id) {
		return nil, IsNew, api.Denied("%s is what a person used last: choose another name", id)
	}
	// What an earlier temporary agent of that name left is not this one's.
	if err := r.o.Sessions.RemoveTemp(id); err != nil {
		return nil, IsNew, err
	}
	from := IsNew
	if r.o.Sessions.Exists(id) {
		from = WasSaved
	}
	if from == WasSaved && c.By.Agent != nil {
		return nil, IsNew, api.Denied("there is a saved agent %s: to go on with it is for people; choose another name, or send to it", id)
	}
	a, err = r.start(ctx, p)
	return a, from, err
}

// Describe is an agent as list_agents has it; children is how many it has created.
func Describe(info supervisor.Info, children int) api.AgentInfo {
	out := api.AgentInfo{
		AgentID:        info.ID,
		CreatedAt:      info.CreatedAt.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
		ShouldShutdown: info.ShouldShutdown,
		State:          info.State.String(),
		Incarnation:    info.Incarnation,
		Restarts:       info.Restarts,
		IsTemp:         api.IsTemp(info.ID),
		ParentAgentID:  Known(info.Labels.Parent),
		Provenance:     cmp.Or(info.Labels.Provenance, api.ProvenanceUser),
		ChildCount:     children,
		Queued:         info.Queued,

		PendingPermissions: len(info.Asked),
		RequestID:          Known(info.Running),
		LastRestartReason:  Known(string(info.LastRestart)),
		LastError:          Known(info.LastError),
	}
	if info.PID > 0 {
		out.PID = &info.PID
	}
	if u := info.Update; u != nil {
		out.MessageCount = u.MessageCount
		out.Model, out.PermissionLevel, out.Cwd = Known(u.Model), Known(u.Preset), Known(u.Cwd)
		out.LastActionAt = u.LastActionAt
	}
	return out
}

// Known is a pointer to s, nil if there is nothing in it.
func Known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
