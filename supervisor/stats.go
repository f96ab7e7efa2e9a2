package supervisor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is a snapshot of what a Supervisor has counted since it was made.
type Stats struct {
	// Agents counts the agents there are by state.
	Agents map[State]int
	// Waiting is how many prompts wait in all queues.
	Waiting int

	LaunchTimes    LaunchTimes       // of incarnations that became ready
	LaunchFailures uint64            // that did not
	Crashes        map[Reason]uint64 // of both kinds, before and after ready
	Restarts       map[Reason]uint64 // incarnations that became ready after a crash, by the reason of that crash
	Prompts        uint64            // accepted, repeated ones not counted
	Repeats        uint64            // prompts whose id was known, joined and replayed ones
	Retries        uint64            // turns that were sent once more after a crash
	Events         uint64            // published
	SlowSubs       uint64            // subscriptions lost with ErrSlow
	// Outcomes counts ended turns.
	Outcomes map[Outcome]uint64
}

// LaunchTimes tell how long incarnations took to be ready.
type LaunchTimes struct {
	Count  uint64
	Sum    time.Duration
	Within map[float64]uint64 // how many took at most so many seconds
}

// launchBounds are the keys of LaunchTimes.Within, in seconds, ascending.
var launchBounds = [...]float64{.005, .01, .02, .03, .05, .075, .1, .25, .5, 1, 2.5, 5, 10}

// launchTimes counts them. It is safe for concurrent use.
type launchTimes struct {
	mu    sync.Mutex // guards all below
	sum   time.Duration
	count [len(launchBounds) + 1]uint64 // by the first bound that holds; the last is of none
}

func (l *launchTimes) observe(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum += took
	i, _ := slices.BinarySearch(launchBounds[:], took.Seconds())
	l.count[i]++
}

func (l *launchTimes) snapshot() LaunchTimes {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := LaunchTimes{Sum: l.sum, Within: map[float64]uint64{}}
	for i, n := range l.count {
		if t.Count += n; i < len(launchBounds) {
			t.Within[launchBounds[i]] = t.Count
		}
	}
	return t
}

type counters struct {
	launchFailures, slow, events                   atomic.Uint64
	prompts, repeats, retries                      atomic.Uint64
	completed, cancelled, erred, crashed, timedOut atomic.Uint64
	crashes, restarts                              tally
	launched                                       launchTimes
	cpu                                            atomic.Int64 // nanoseconds, of those that are gone
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
		LaunchTimes:    s.count.launched.snapshot(),
		LaunchFailures: s.count.launchFailures.Load(),
		Crashes:        s.count.crashes.snapshot(),
		Restarts:       s.count.restarts.snapshot(),
		Prompts:        s.count.prompts.Load(),
		Repeats:        s.count.repeats.Load(),
		Retries:        s.count.retries.Load(),
		Events:         s.count.events.Load(),
		SlowSubs:       s.count.slow.Load(),
		Outcomes:       map[Outcome]uint64{},
	}
	for _, o := range []Outcome{Completed, Cancelled, Erred, Crashed, TimedOut} {
		st.Outcomes[o] = s.count.outcome(o).Load()
	}
	for _, info := range s.Agents() {
		st.Agents[info.State]++
		st.Waiting += len(info.Waiting)
	}
	return st
}

// Usages is what the agents' processes take.
type Usages struct {
	Agents map[string]Usage // by id, of those that have a process
	// CPU is the time of all incarnations that there were since the Supervisor was
	// made. One that ends meanwhile may be left out.
	CPU time.Duration
}

// Usage asks the system about each process there is, some microseconds for each.
func (s *Supervisor) Usage() Usages {
	u := Usages{Agents: map[string]Usage{}, CPU: time.Duration(s.count.cpu.Load())}
	for _, a := range s.all() {
		conn := a.conn()
		if conn == nil {
			continue
		}
		one := conn.Usage()
		u.Agents[a.spec.ID] = one
		u.CPU += one.CPU
	}
	return u
}

// conn is that of the agent's incarnation; nil without one.
func (a *Agent) conn() (conn Conn) {
	a.update(func(s *agentState) []effect {
		if s.inc != nil {
			conn = s.inc.conn
		}
		return nil
	})
	return conn
}
