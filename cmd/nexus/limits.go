package main

import (
	"errors"
	"fmt"
	"syscall"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/store"
)

// limitsOf are the limits of agents that have none of their own.
func limitsOf(cfg *config.Config) (broker.Limits, error) {
	l := cfg.Limits
	asked := api.Limits{
		Tokens: &l.Tokens, CostUSD: &l.CostUSD, RequestsPerMinute: &l.RequestsPerMinute, TokensPerMinute: &l.TokensPerMinute,
		MemoryBytes: &l.MemoryBytes, Processes: &l.Processes, OpenFiles: &l.OpenFiles, CPUSeconds: &l.CPUSeconds,
		OutputBytesPerSecond: &l.OutputBytesPerSecond, TurnSeconds: &l.TurnSeconds, Agents: l.Agents,
	}
	if err := api.Check(asked); err != nil {
		return broker.Limits{}, misconfigured(cfg, "limits", err)
	}
	return broker.Limits{Limits: asked.Over(protocol.Limits{Agents: agents.DefaultTreeAgents}), Concurrent: l.Concurrent}, nil
}

// limits are those that an agent is made with: over the default ones, or those that hold
// for a saved one; nil if nothing was said.
func (a *admission) limits(s supervisor.Spec, own *api.Limits) (*broker.Limits, error) {
	if own == nil {
		return nil, nil
	}
	base := a.config.settings().limits
	if !s.Fresh {
		h, err := a.models.AgentLimits(s.ID)
		if err != nil {
			return nil, unreadableLimits(err)
		}
		base = h.Limits
	}
	base.Limits = own.Over(base.Limits)
	return &base, nil
}

func (a *admission) Limits(agent string) (agents.HeldLimits, error) {
	h, err := a.models.AgentLimits(agent)
	if err != nil {
		return agents.HeldLimits{}, unreadableLimits(err)
	}
	l := agents.HeldLimits{Held: h.Limits.Limits, TokensUsed: h.Spent, CostUsed: h.SpentUSD}
	if h.Outer != nil {
		l.Outer = h.Outer.Limits
		l.Outer.Tokens, l.Outer.CostUSD, l.Outer.RequestsPerMinute, l.Outer.TokensPerMinute = 0, 0, 0, 0 // those of both hold
	}
	return l, nil
}

func (a *admission) SetLimits(agent string, given api.Limits) error {
	h, err := a.models.AgentLimits(agent)
	if err != nil {
		return unreadableLimits(err)
	}
	h.Limits.Limits = given.Over(h.Limits.Limits)
	if err := a.models.SetLimits(agent, h.Limits); err != nil {
		return fmt.Errorf("%w: %w", supervisor.ErrUnrecorded, err)
	}
	return nil
}

// unreadableLimits is an error of the broker as the façade knows it: damaged limits are a
// *sessions.Error.
func unreadableLimits(err error) error {
	if e, ok := errors.AsType[*store.DamagedError](err); ok {
		return &sessions.Error{Name: e.Agent, Err: fmt.Errorf("%w: %w", sessions.ErrUnreadable, e)}
	}
	return err
}

// maxUnauthenticated is how many connections without a key may be open: at most a
// quarter of the files that this process may have open. Go has raised that to
// what the system lets it have.
func maxUnauthenticated() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return httpd.DefaultMaxUnauthenticated
	}
	return int(max(1, min(httpd.DefaultMaxUnauthenticated, files.Cur/4)))
}
