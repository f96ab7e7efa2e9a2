package supervisor

import (
	"slices"
	"time"
)

// maxLives is how many lives that are over are remembered (SPEC §7): then the
// oldest is forgotten.
const maxLives = 4096

// Life is one stay of an agent in this server, from its start to its removal.
type Life struct {
	// Number rises from each life to the next; those of a later server are above
	// those of an earlier one, unless the clock was set back.
	Number uint64
	ID     string
	Since  uint64 // the number of the agent's last event before it
	Last   uint64 // the number of its last event, once it is over
	Agent  *Agent // nil once it is over
	Gone   bool   // what happened in it is not on disk any more

	ended uint64 // a number, too: those that begin later are above
}

// Subscribe returns a place after a number in the events of the Agent, which is not
// nil but may be on its way out: a gap stands for all that is not kept.
func (l Life) Subscribe(after uint64) *Subscription {
	return l.Agent.hub.subscribe(true, func(uint64) uint64 { return after })
}

// lives are those of one Supervisor, whose mutex guards them.
type lives struct {
	all       []*Life // in order; at most maxLives that are over
	over      int     // so many of them
	newest    uint64  // the last number
	forgotten uint64  // the last at which one ended that all does not have
}

// newLives begins to count where no earlier server has come to: no server starts
// an agent each microsecond.
func newLives() lives {
	now := uint64(time.Now().UnixMicro())
	return lives{newest: now, forgotten: now}
}

// begin notes that an agent begins. Where its numbers begin anew, what was before
// is not on disk any more.
func (l *lives) begin(a *Agent) *Life {
	id := a.spec.ID
	for _, old := range l.all {
		if old.ID == id && old.Last > a.since {
			old.Gone = true
		}
	}
	l.newest++
	life := &Life{Number: l.newest, ID: id, Since: a.since, Agent: a}
	l.all = append(l.all, life)
	return life
}

// end notes that all of a life is over.
func (l *lives) end(life *Life) {
	l.newest++
	life.Last, life.Agent, life.ended = life.Agent.hub.number(), nil, l.newest
	if l.over++; l.over <= maxLives {
		return
	}
	oldest := -1
	for i, one := range l.all {
		if one.Agent == nil && (oldest < 0 || one.ended < l.all[oldest].ended) {
			oldest = i
		}
	}
	l.forgotten = l.all[oldest].ended
	l.all = slices.Delete(l.all, oldest, oldest+1)
	l.over--
}

// Lives returns the lives above a number that are remembered, in their order, and a
// channel that is closed once there is another one or one is over.
func (s *Supervisor) Lives(after uint64) (lives []Life, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.lives.all)
	for from > 0 && s.lives.all[from-1].Number > after {
		from--
	}
	for _, life := range s.lives.all[from:] {
		lives = append(lives, *life)
	}
	return lives, s.changed
}

// LivesUpTo is the number below which all lives have that there were, and the one
// since which none that ended is forgotten.
func (s *Supervisor) LivesUpTo() (newest, forgotten uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives.newest, s.lives.forgotten
}

// Gone reports whether what happened in a life is not on disk any more, or the
// life is not remembered.
func (s *Supervisor) Gone(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, life := range s.lives.all {
		if life.Number == number {
			return life.Gone
		}
	}
	return true
}

// Forget says that what the agents of an id did that do not run any more is about
// to leave the disk.
func (s *Supervisor) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, life := range s.lives.all {
		if life.ID == id && life.Agent == nil {
			life.Gone = true
		}
	}
}
