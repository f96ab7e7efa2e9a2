package supervisor

import (
	"time"

	"nexus.internal/protocol"
)

// Move is the table of states, for tests.
func Move(from, to State) State { return from.move(to) }

// Bounds, for tests.
const (
	HubKeep          = hubKeep
	HubLimit         = hubLimit
	MaxRegistrations = maxRegistrations
)

// Waits is who waits for whom, for tests.
type Waits struct{ waitGraph }

// Begin records a wait, or refuses one that would close a circle.
func (w *Waits) Begin(from, to string) error { return w.begin(from, to) }

// Oversleep makes the next look at an agent's child come late by d.
func Oversleep(a *Agent, d time.Duration) {
	a.update(func(s *agentState) []effect {
		s.inc.heartbeat.due = s.inc.heartbeat.due.Add(-d)
		return nil
	})
}

// Held is how many bytes of prompts are held for all agents.
func (s *Supervisor) Held() int64 { return s.budget.bytes.Load() }

// Hold keeps everybody from an agent's state and from its events until release.
func Hold(a *Agent) (release func()) {
	a.stateMu.Lock()
	a.hub.mu.Lock()
	return func() {
		a.hub.mu.Unlock()
		a.stateMu.Unlock()
	}
}

// Handle routes a frame as if the agent's child had written it.
func Handle(a *Agent, f protocol.Frame) { a.handle(a.guarded.inc, f) }

// NewUnspread is New, but the delays before restarts are their means.
func NewUnspread(o Options) *Supervisor {
	s := New(o)
	s.spread = func() float64 { return 0.5 }
	return s
}
