package main

import (
	"context"
	"os"
	"path/filepath"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/replicated"
)

// machines is a cluster as the façade knows it.
type machines struct {
	*cluster.Node
	*replicated.Store
	common
	home config.Home
}

var _ bridge.Machines = machines{}

// machines are those of a server; nil for one that is in no cluster.
func (m *membership) machines() bridge.Machines {
	if m == nil {
		return nil
	}
	return machines{m.node, m.kept, m.common(), m.home}
}

func (m machines) All() (all []forward.Machine) {
	for _, one := range m.Machines() { // of one of an unknown version is not known what it has room for: it gets no agents
		state := forward.State(one.State)
		if one.State == cluster.RemovedState { // its agents are not reached
			state = forward.Lost
		}
		all = append(all, forward.Machine{
			Name: one.Name, State: state, Draining: one.Draining || one.Version == cluster.UnknownVersion, Labels: one.Labels, Version: one.Version,
			Load: forward.Load{
				Processors: one.Load.Processors, MemoryBytes: one.Load.MemoryBytes, FreeBytes: one.Load.FreeBytes,
				Agents: one.Load.Agents, MaxAgents: one.Load.MaxAgents,
			},
			Claims: one.Claims,
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
	if err := m.Forget(ctx, agent); err != nil {
		return err
	}
	return m.Node.Release(ctx, agent, c.Epoch)
}

func (m machines) ClaimRun(ctx context.Context, run string) (machine string, err error) {
	return m.r.Take(ctx, runName+run, m.Self())
}

func (m machines) RunOwner(ctx context.Context, run string) (machine string, err error) {
	return m.r.Holder(ctx, runName+run)
}

func (m machines) ReleaseRun(ctx context.Context, run string) error {
	return m.r.Drop(ctx, runName+run, m.Self())
}

func (m machines) LookAt(ctx context.Context, agent string, look func(*sessions.Catalogue) error) error {
	scratch, err := safefile.MakeDir(m.home.ScratchDir())
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Remove() }() // the next one sweeps it
	home := config.Home(filepath.Join(scratch.Path(), "home"))
	if err := os.MkdirAll(home.SessionsDir(), 0o700); err != nil {
		return err
	}
	there, err := m.SaveOne(ctx, agent, home.SessionsDir(), filepath.Join(scratch.Path(), "coming"))
	if err != nil || !there {
		return err
	}
	return look(sessions.New(string(home), nil))
}

// cwds are the working directories of agents.
type cwds struct {
	agents    *supervisor.Supervisor
	catalogue *sessions.Catalogue
	home      config.Home
	machine   string // this one
}

// Place implements [replicated.Directories].
func (c *cwds) Place(agent string) (p replicated.Place) {
	if a, err := c.agents.Agent(agent); err == nil {
		info := a.Info()
		return replicated.Place{Cwd: protocol.Value(agents.Cwd(info)), Fresh: info.Labels.CwdLost == protocol.CwdLostFresh, Creator: info.Labels.Parent}
	}
	saved, err := c.catalogue.Summary(agent)
	if err != nil {
		return p // it is not known
	}
	return replicated.Place{
		Cwd: protocol.Value(saved.Settings.Cwd), Fresh: protocol.Value(saved.Settings.CwdLost) == protocol.CwdLostFresh, Creator: protocol.Value(saved.Settings.ParentAgentID),
	}
}

// Lose implements [replicated.Directories].
func (c *cwds) Lose(agent, machine string) error {
	dir, err := c.home.NewCwd(agent)
	if err != nil {
		return err
	}
	return sessions.LoseCwd(c.catalogue, agent, sessions.LostCwd{Node: machine, To: dir, On: c.machine})
}
