package top

import (
	"slices"
	"time"

	"nexus.internal/bridge/api"
)

// agent is an agent as it was seen last, and what it took before.
type agent struct {
	api.AgentInfo
	percent   float64 // of one processor, since the sample before; -1 if that is not known
	perMinute float64 // tokens, likewise

	processor, memory, tokens curve // percent, bytes, tokens in a minute
}

// board has all agents of the last sample.
type board struct {
	agents map[string]*agent
	at     time.Duration // of the last sample, since the beginning

	processor, memory, tokens curve // of all agents
}

// take takes a sample.
func (b *board) take(infos []api.AgentInfo, at time.Duration) {
	before, since := b.agents, (at - b.at).Seconds()
	b.agents, b.at = map[string]*agent{}, at
	for _, info := range infos {
		if a := before[info.AgentID]; a != nil && a.CreatedAt == info.CreatedAt {
			b.agents[info.AgentID] = a
			a.see(info, since, at)
		} else {
			b.agents[info.AgentID] = &agent{}
			b.agents[info.AgentID].see(info, 0, at)
		}
	}
	processor, memory, tokens := b.sums()
	b.processor.add(at, processor)
	b.memory.add(at, memory)
	b.tokens.add(at, tokens)
}

// see takes a sample of one agent, so many seconds after the one before; 0 if there was none.
func (a *agent) see(info api.AgentInfo, since float64, at time.Duration) {
	a.percent, a.perMinute = -1, -1
	if since > 0 && info.Incarnation == a.Incarnation && info.CPUSeconds != nil && a.CPUSeconds != nil {
		a.percent = max(0, *info.CPUSeconds-*a.CPUSeconds) / since * 100
	}
	if since > 0 && info.TokensUsed != nil && a.TokensUsed != nil {
		a.perMinute = max(0, float64(*info.TokensUsed)-float64(*a.TokensUsed)) / since * 60
	}
	a.AgentInfo = info
	a.processor.add(at, a.percent)
	a.memory.add(at, byMemory.value(a))
	a.tokens.add(at, a.perMinute)
}

// sums are of all agents; tokens in a minute of those that no other one of them created, as theirs
// are in its. -1 is what is known of none.
func (b *board) sums() (processor, memory, tokens float64) {
	processor, memory, tokens = -1, -1, -1
	add := func(sum *float64, value float64) {
		if value >= 0 {
			*sum = max(0, *sum) + value
		}
	}
	for _, a := range b.agents {
		add(&processor, a.percent)
		add(&memory, byMemory.value(a))
		if b.root(a) {
			add(&tokens, a.perMinute)
		}
	}
	return processor, memory, tokens
}

// root reports whether no agent of the board has created this one.
func (b *board) root(a *agent) bool {
	return a.ParentAgentID == nil || b.agents[*a.ParentAgentID] == nil
}

// used are the tokens of all agents, and their cost.
func (b *board) used() (tokens, cost float64) {
	for _, a := range b.agents {
		if b.root(a) {
			tokens += max(0, byTokens.value(a))
			cost += max(0, byCost.value(a))
		}
	}
	return tokens, cost
}

// sorted are the agents in the order of a column, or the other way round.
func (b *board) sorted(by column, inverted bool) []*agent {
	all := make([]*agent, 0, len(b.agents))
	for _, a := range b.agents {
		all = append(all, a)
	}
	slices.SortFunc(all, by.compare)
	if inverted {
		slices.Reverse(all)
	}
	return all
}

// curve is the one that goes with a column.
func (a *agent) curve(by column) *curve {
	switch by { //nolint:exhaustive // the others have none
	case byMemory:
		return &a.memory
	case byTokens, byCost:
		return &a.tokens
	}
	return &a.processor
}

// most is the largest value of all agents' curves in their last cells.
func (b *board) most(by column, cells int) (most float64) {
	for _, a := range b.agents {
		most = max(most, a.curve(by).most(cells))
	}
	return most
}
