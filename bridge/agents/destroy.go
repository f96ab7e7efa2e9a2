package agents

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// Destroy removes an agent for a call, and then all that were created for it. An agent that
// is being created for it meanwhile either is seen here or sees that it is gone.
// supervisor.ErrNotFound if there was none.
func (r *Registry) Destroy(ctx context.Context, c *rpc.Call, id string) error {
	created, err := r.remove(ctx, id)
	if err != nil {
		return err
	}
	var removals sync.WaitGroup
	for _, id := range created {
		removals.Go(func() {
			if err := r.DestroyFor(ctx, c, id); err != nil {
				r.log.Error("destroy an agent with its creator", zap.String("agent", id), zap.Error(err))
			}
		})
	}
	removals.Wait()
	return nil
}

// remove ends one agent, and returns those that were created for it. A temporary
// one's session goes with it, unless a person used it last.
func (r *Registry) remove(ctx context.Context, id string) (created []string, err error) {
	defer r.locks.Lock(id)()
	if err := r.o.Supervisor.Remove(context.WithoutCancel(ctx), id); err != nil {
		return nil, err
	}
	if !r.last.is(id) {
		if err := r.o.Sessions.RemoveTemp(id); err != nil {
			r.log.Warn("agent destroyed, its file is still there", zap.String("agent", id), zap.Error(err))
		}
	}
	release(ctx, r, id)
	return r.Created(id), nil
}

// DestroyFor destroys an agent that nobody asked for by name, and audits that; it
// is no error if there is none.
func (r *Registry) DestroyFor(ctx context.Context, c *rpc.Call, id string) error {
	end := c.OnBehalf(api.DestroyAgent.Name, api.AgentIDParams{AgentID: id})
	err := r.Destroy(ctx, c, id)
	if errors.Is(err, supervisor.ErrNotFound) {
		err = nil
	}
	end(err)
	return err
}

// removeIfAbandoned destroys a new agent if the one that it was made for has gone
// meanwhile, or does not want it any more. The error says that.
func (r *Registry) removeIfAbandoned(ctx context.Context, c *rpc.Call, a, creator *supervisor.Agent) error {
	var gone error
	if creator != nil {
		if now, err := r.o.Supervisor.Agent(creator.ID()); err != nil || now != creator {
			gone = api.Invalid("parent_agent_id", "agent %s was destroyed meanwhile", creator.ID())
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
