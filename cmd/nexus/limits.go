package main

import (
	"fmt"
	"math"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/supervisor/broker"
)

// limitsOf are the limits of agents that have none of their own.
func limitsOf(cfg *config.Config) (broker.Limits, error) {
	l := cfg.Limits()
	asked := api.Limits{
		Tokens: &l.Tokens, RequestsPerMinute: &l.RequestsPerMinute, TokensPerMinute: &l.TokensPerMinute,
		MemoryBytes: &l.MemoryBytes, Processes: &l.Processes, OpenFiles: &l.OpenFiles, CPUSeconds: &l.CPUSeconds,
		OutputBytesPerSecond: &l.OutputBytesPerSecond, TurnSeconds: &l.TurnSeconds, Agents: l.Agents,
	}
	if err := api.Check(asked); err != nil {
		return broker.Limits{}, fmt.Errorf("config.json: %w", err)
	}
	return over(broker.Limits{Concurrent: bounded(l.Concurrent), Agents: bridge.DefaultTreeAgents}, asked), nil
}

// limits are those that an agent is made with, over the default ones; nil if
// nothing was said.
func (s *specs) limits(asked *api.Limits) *broker.Limits {
	if asked == nil {
		return nil
	}
	return new(over(s.config.settings().limits, *asked))
}

// over puts what was asked for, which was checked, in the place of what holds
// otherwise.
func over(l broker.Limits, asked api.Limits) broker.Limits {
	if asked.Tokens != nil {
		l.Tokens = *asked.Tokens
	}
	if asked.RequestsPerMinute != nil {
		l.RequestsPerMinute = bounded(*asked.RequestsPerMinute)
	}
	if asked.TokensPerMinute != nil {
		l.TokensPerMinute = bounded(*asked.TokensPerMinute)
	}
	if asked.Agents != nil {
		l.Agents = bounded(*asked.Agents)
	}
	p := &l.Process
	for _, one := range []struct {
		asked *uint64
		limit *int64
	}{
		{asked.MemoryBytes, &p.MemoryBytes},
		{asked.Processes, &p.Processes},
		{asked.OpenFiles, &p.OpenFiles},
		{asked.CPUSeconds, &p.CPUSeconds},
		{asked.OutputBytesPerSecond, &p.OutputBytesPerSecond},
	} {
		if one.asked != nil {
			*one.limit = int64(*one.asked)
		}
	}
	if asked.TurnSeconds != nil {
		p.TurnTime = time.Duration(*asked.TurnSeconds) * time.Second
	}
	return l
}

// bounded makes a limit an int; one that is cut is none that anybody reaches.
func bounded(n uint64) int { return int(min(n, math.MaxInt32)) }
