package supervisor

import (
	"slices"
	"time"
)

// maxRegistrations is how many registrations that are over are remembered (SPEC §7): then
// the oldest is forgotten.
const maxRegistrations = 4096

// Registration is one stay of an agent in this server, from its start to its removal.
type Registration struct {
	// Number rises from each registration to the next; those of a later server are above
	// those of an earlier one, unless the clock was set back.
	Number uint64
	ID     string
	Since  uint64 // the number of the agent's last event before it
	Last   uint64 // the number of its last event, once it is over
	Agent  *Agent // nil once it is over
	Gone   bool   // what happened in it is not on disk any more
	Moved  bool   // it is over as another machine has the agent, or was to have it

	ended uint64 // a number, too: those that begin later are above
}

// Subscribe returns a place after a number in the events of the Agent, which is not
// nil but may be on its way out: a gap stands for all that is not kept.
func (r Registration) Subscribe(after uint64) *Subscription {
	return r.Agent.hub.subscribe(true, func(uint64) uint64 { return after })
}

// history has the registrations of one Supervisor, whose mutex guards it.
type history struct {
	all       []*Registration // in order; at most maxRegistrations that are over
	over      int             // so many of them
	newest    uint64          // the last number
	forgotten uint64          // the last at which one ended that all does not have
}

// newHistory begins to count where no earlier server has come to: no server starts
// an agent each microsecond.
func newHistory() history {
	now := uint64(time.Now().UnixMicro())
	return history{newest: now, forgotten: now}
}

// begin notes that an agent begins. Where its numbers begin anew, what was before
// is not on disk any more.
func (h *history) begin(a *Agent) *Registration {
	id := a.spec.ID
	for _, old := range h.all {
		if old.ID == id && old.Last > a.since {
			old.Gone = true
		}
	}
	h.newest++
	r := &Registration{Number: h.newest, ID: id, Since: a.since, Agent: a}
	h.all = append(h.all, r)
	return r
}

// end notes that all of a registration is over.
func (h *history) end(r *Registration) {
	h.newest++
	r.Last, r.Moved, r.Agent, r.ended = r.Agent.hub.number(), r.Agent.hub.hasMoved(), nil, h.newest
	if h.over++; h.over <= maxRegistrations {
		return
	}
	oldest := -1
	for i, one := range h.all {
		if one.Agent == nil && (oldest < 0 || one.ended < h.all[oldest].ended) {
			oldest = i
		}
	}
	h.forgotten = h.all[oldest].ended
	h.all = slices.Delete(h.all, oldest, oldest+1)
	h.over--
}

// Registrations returns those above a number that are remembered, in their order, and a
// channel that is closed once there is another one or one is over.
func (s *Supervisor) Registrations(after uint64) (all []Registration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.history.all)
	for from > 0 && s.history.all[from-1].Number > after {
		from--
	}
	for _, r := range s.history.all[from:] {
		all = append(all, *r)
	}
	return all, s.changed
}

// RegisteredUpTo is the number that no registration so far is above, and the one since
// which none that ended is forgotten.
func (s *Supervisor) RegisteredUpTo() (newest, forgotten uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history.newest, s.history.forgotten
}

// Gone reports whether what happened in a registration is not on disk any more, or the
// registration is not remembered.
func (s *Supervisor) Gone(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.history.all {
		if r.Number == number {
			return r.Gone
		}
	}
	return true
}

// Forget says that what the agents of an id did that do not run any more is about
// to leave the disk.
func (s *Supervisor) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.history.all {
		if r.ID == id && r.Agent == nil {
			r.Gone = true
		}
	}
}
