package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// crew is the agents that carry out a plan: those that were named, or ones of
// its own that are created as they are needed. A worker is used by one task at a
// time.
type crew struct {
	s    *Server
	ids  []string
	make *api.CreateAgentParams // what creates its own; nil for agents that were named

	mu   sync.Mutex // guards made
	made map[string]bool
}

func (s *Server) newCrew(p api.RunPlanParams) *crew {
	if p.Agents != nil {
		return &crew{s: s, ids: *p.Agents}
	}
	pool := api.Value(p.Pool)
	size := api.DefaultPool
	if pool.Size != nil {
		size = *pool.Size
	}
	c := &crew{s: s, made: map[string]bool{}, make: &api.CreateAgentParams{
		Preset: pool.Preset, Cwd: pool.Cwd, Model: pool.Model, Provider: pool.Provider, SystemPrompt: pool.SystemPrompt,
	}}
	sum := sha256.Sum256([]byte(*p.RequestID))
	for i := range min(size, len(p.Plan.Tasks)) {
		c.ids = append(c.ids, fmt.Sprintf(".plan-%x-%d", sum[:8], i+1))
	}
	return c
}

// worker is the agent of that number. One of the crew's own is created the first
// time, afresh.
func (c *crew) worker(ctx context.Context, number int) (*supervisor.Agent, error) {
	id := c.ids[number]
	c.mu.Lock()
	there := c.make == nil || c.made[id]
	c.mu.Unlock()
	if there {
		return c.s.agent(ctx, id)
	}
	p := *c.make
	p.AgentID = &id
	a, _, err := c.s.create(ctx, &call{}, p)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[id] = true
	return a, nil
}

// dismiss destroys what the crew has created.
func (c *crew) dismiss() {
	var removals sync.WaitGroup
	for id := range c.made {
		removals.Go(func() {
			if err := c.s.destroy(context.Background(), id); err != nil && !errors.Is(err, supervisor.ErrNotFound) {
				c.s.log.Error("destroy an agent of a plan", zap.String("agent", id), zap.Error(err))
			}
		})
	}
	removals.Wait()
}
