package supervisor

import "sync/atomic"

// Stats is a snapshot of what a Supervisor has counted since it was made.
type Stats struct {
	// Agents counts the agents there are by state.
	Agents map[State]int
	// Waiting is how many prompts wait in all queues.
	Waiting int

	Launches       uint64            // incarnations that became ready
	LaunchFailures uint64            // that did not
	Crashes        map[Reason]uint64 // of both kinds, before and after ready
	Restarts       map[Reason]uint64 // incarnations that became ready after a crash, by the reason of that crash
	Prompts        uint64            // accepted, joined and replayed ones not counted
	Events         uint64            // published
	SlowSubs       uint64            // subscriptions lost with ErrSlow
	// Outcomes counts ended turns.
	Outcomes map[Outcome]uint64
}

type counters struct {
	launches, launchFailures, prompts, slow, events atomic.Uint64
	completed, cancelled, erred, crashed, timedOut  atomic.Uint64
	crashes, restarts                               tally
}

func (c *counters) outcome(o Outcome) *atomic.Uint64 {
	switch o {
	case Completed:
		return &c.completed
	case Cancelled:
		return &c.cancelled
	case Erred:
		return &c.erred
	case Crashed:
		return &c.crashed
	case TimedOut:
		return &c.timedOut
	default:
		panic("supervisor: no counter for outcome " + string(o))
	}
}

// Stats returns the counts. It locks each agent for a moment.
func (s *Supervisor) Stats() Stats {
	st := Stats{
		Agents:         map[State]int{},
		Launches:       s.count.launches.Load(),
		LaunchFailures: s.count.launchFailures.Load(),
		Crashes:        s.count.crashes.snapshot(),
		Restarts:       s.count.restarts.snapshot(),
		Prompts:        s.count.prompts.Load(),
		Events:         s.count.events.Load(),
		SlowSubs:       s.count.slow.Load(),
		Outcomes:       map[Outcome]uint64{},
	}
	for _, o := range []Outcome{Completed, Cancelled, Erred, Crashed, TimedOut} {
		st.Outcomes[o] = s.count.outcome(o).Load()
	}
	for _, info := range s.Agents() {
		st.Agents[info.State]++
		st.Waiting += info.Queued
	}
	return st
}
