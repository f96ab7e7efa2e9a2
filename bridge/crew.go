package bridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// crew is the agents that carry out a plan: those that were named, or ones of
// its own that are created as they are needed. A worker is used by one task at a
// time.
type crew struct {
	s    *Server
	by   *rpc.Call              // who wanted the plan
	make *api.CreateAgentParams // what creates its own; nil for agents that were named

	mu   sync.Mutex // guards all below
	ids  []string
	made []*supervisor.Agent // its own, by worker; nil for one that is not there
}

func (s *Server) newCrew(by *rpc.Call, p api.RunPlanParams) *crew {
	if p.Agents != nil {
		return &crew{s: s, by: by, ids: *p.Agents}
	}
	pool := protocol.Value(p.Pool)
	size := api.DefaultPool
	if pool.Size != nil {
		size = *pool.Size
	}
	agent := pool.Agent()
	c := &crew{s: s, by: by, make: &agent}
	for i := range min(size, len(p.Plan.Tasks)) {
		c.ids, c.made = append(c.ids, crewID(i)), append(c.made, nil)
	}
	return c
}

// crewID is a new name for a worker, which nobody can know before.
func crewID(number int) string {
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // never fails
	return fmt.Sprintf(planPrefix+"%x-%d", secret, number+1)
}

// id is the name of a worker.
func (c *crew) id(number int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids[number]
}

// worker is the agent of that number. One of the crew's own is created the first
// time, afresh, and never taken for another of its name.
func (c *crew) worker(ctx context.Context, number int) (*supervisor.Agent, error) {
	c.mu.Lock()
	id := c.ids[number]
	var made *supervisor.Agent
	if c.make != nil {
		made = c.made[number]
	}
	c.mu.Unlock()
	if c.make == nil {
		return c.s.agent(ctx, id)
	}
	if made != nil {
		if now, err := c.s.o.Supervisor.Agent(id); err != nil || now != made {
			return nil, rpc.AgentNotFound(id, rpc.ErrDestroyed)
		}
		return made, nil
	}
	p := *c.make
	p.AgentID = &id
	a, err := c.s.createFor(ctx, c.by, p)
	if err != nil {
		return nil, api.PoolError(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[number] = a
	return a, nil
}

// replace gives up a worker that was destroyed, and reports whether there will
// be another of that number.
func (c *crew) replace(number int) bool {
	if c.make == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[number], c.made[number] = crewID(number), nil
	return true
}

// dismiss destroys what the crew has created.
func (c *crew) dismiss() {
	var removals sync.WaitGroup
	for number, a := range c.made {
		if a == nil {
			continue
		}
		if now, err := c.s.o.Supervisor.Agent(a.ID()); err != nil || now != a {
			continue // somebody was faster
		}
		removals.Go(func() {
			if err := c.s.destroyFor(context.Background(), c.by, a.ID()); err != nil {
				c.s.log.Error("destroy an agent of a plan", zap.String("agent", c.id(number)), zap.Error(err))
			}
		})
	}
	removals.Wait()
}
