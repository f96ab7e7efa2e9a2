package terminal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// met are the agents that were talked to, or were brought to run for a talk. A talk may end while an agent is
// brought: wait then waits for its name, without which nobody knows whose the agent is. Safe for concurrent use.
type met struct {
	mu       sync.Mutex      // guards the rest
	agents   map[string]bool // whether they run since they were created or restored here
	bringing int             // how many are brought just now
	over     chan struct{}   // nil before wait; closed once none is brought any more
}

// errOver says that an agent is not brought, as the talk has ended.
var errOver = errors.New("the talk is over")

// errNotBrought says that none was brought.
var errNotBrought = errors.New("no agent was brought")

// add takes an agent.
func (m *met) add(agent string, brought bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agents == nil {
		m.agents = map[string]bool{}
	}
	m.agents[agent] = m.agents[agent] || brought
}

// of reports whether an agent was met, and whether it was created or restored here.
func (m *met) of(agent string) (brought, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	brought, is = m.agents[agent]
	return brought, is
}

// rename takes that an agent has another name, if it was met.
func (m *met) rename(agent, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if brought, is := m.agents[agent]; is {
		m.agents[to] = m.agents[to] || brought
	}
}

// names are the agents that were met.
func (m *met) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.agents))
}

// begin begins to bring an agent; errOver once the talk is over. The caller must call end.
func (m *met) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil {
		return errOver
	}
	m.bringing++
	return nil
}

// end ends that, with the agent that was brought, if there was no error.
func (m *met) end(agent string, brought bool, err error) {
	if err == nil {
		m.add(agent, brought)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bringing--; m.bringing == 0 && m.over != nil {
		close(m.over)
	}
}

// wait has no further agent brought, and returns once none is any more, or ctx ends. It is called once.
func (m *met) wait(ctx context.Context) {
	m.mu.Lock()
	over := make(chan struct{})
	if m.over = over; m.bringing == 0 {
		close(over)
	}
	m.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
