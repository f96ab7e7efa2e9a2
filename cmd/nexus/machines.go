package main

import (
	"context"

	"nexus.internal/bridge/forward"
	"nexus.internal/supervisor/cluster"
)

// machines is a cluster as the façade knows it.
type machines struct{ *cluster.Node }

var _ forward.Machines = machines{}

// machines are those of a server; nil for one that is in no cluster.
func (m *membership) machines() forward.Machines {
	if m == nil {
		return nil
	}
	return machines{m.node}
}

func (m machines) All() (all []forward.Machine) {
	for _, one := range m.Machines() {
		all = append(all, forward.Machine{
			Name: one.Name, State: forward.State(one.State), Labels: one.Labels, Version: one.Version,
			Load: forward.Load{
				Processors: one.Load.Processors, MemoryBytes: one.Load.MemoryBytes, FreeBytes: one.Load.FreeBytes,
				Agents: one.Load.Agents, MaxAgents: one.Load.MaxAgents,
			},
		})
	}
	return all
}

func (m machines) Owner(agent string) (machine string, ok bool) {
	c, ok := m.Node.Owner(agent)
	return c.Machine, ok
}

func (m machines) Claim(ctx context.Context, agent string) (owner string, err error) {
	c, err := m.Take(ctx, agent)
	return c.Machine, err
}

func (m machines) Release(ctx context.Context, agent string) error {
	c, ok := m.Node.Owner(agent)
	if !ok || c.Machine != m.Self() {
		return nil
	}
	return m.Node.Release(ctx, agent, c.Epoch)
}
