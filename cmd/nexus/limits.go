package main

import (
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/broker"
)

// limitsOf are the limits of agents that have none of their own.
func limitsOf(cfg *config.Config) (broker.Limits, error) {
	l := cfg.Limits
	asked := api.Limits{
		Tokens: &l.Tokens, RequestsPerMinute: &l.RequestsPerMinute, TokensPerMinute: &l.TokensPerMinute,
		MemoryBytes: &l.MemoryBytes, Processes: &l.Processes, OpenFiles: &l.OpenFiles, CPUSeconds: &l.CPUSeconds,
		OutputBytesPerSecond: &l.OutputBytesPerSecond, TurnSeconds: &l.TurnSeconds, Agents: l.Agents,
	}
	if err := api.Check(asked); err != nil {
		return broker.Limits{}, misconfigured(cfg, "limits", err)
	}
	return over(broker.Limits{Concurrent: l.Concurrent, Agents: agents.DefaultTreeAgents}, asked), nil
}

// limits are those that an agent is made with, over the default ones; nil if
// nothing was said.
func (s *agentSpecs) limits(asked *api.Limits) *broker.Limits {
	if asked == nil {
		return nil
	}
	return new(over(s.config.settings().limits, *asked))
}

// over puts what was asked for, which was checked, in the place of what holds
// otherwise.
func over(l broker.Limits, asked api.Limits) broker.Limits {
	l.Tokens = protocol.ValueOr(asked.Tokens, l.Tokens)
	l.RequestsPerMinute = protocol.ValueOr(asked.RequestsPerMinute, l.RequestsPerMinute)
	l.TokensPerMinute = protocol.ValueOr(asked.TokensPerMinute, l.TokensPerMinute)
	l.Agents = protocol.ValueOr(asked.Agents, l.Agents)
	p := &l.Process
	or := func(asked *uint64, limit int64) int64 { return int64(protocol.ValueOr(asked, uint64(limit))) }
	p.MemoryBytes = or(asked.MemoryBytes, p.MemoryBytes)
	p.Processes = or(asked.Processes, p.Processes)
	p.OpenFiles = or(asked.OpenFiles, p.OpenFiles)
	p.CPUSeconds = or(asked.CPUSeconds, p.CPUSeconds)
	p.OutputBytesPerSecond = or(asked.OutputBytesPerSecond, p.OutputBytesPerSecond)
	if asked.TurnSeconds != nil {
		p.TurnTime = time.Duration(*asked.TurnSeconds) * time.Second
	}
	return l
}
