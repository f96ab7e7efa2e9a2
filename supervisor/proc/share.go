package proc

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Share bounds what several processes take together: an agent's own and those of the
// agents that it created. It keeps MemoryBytes, Processes and CPUSeconds of its Limits, as
// seen every SampleEvery. Where one is exceeded, the process that takes most of it is
// killed, the agent's own last; one that exceeds it by its start is killed itself. It is safe for concurrent use.
type Share struct {
	name string // of the agent

	mu      sync.Mutex // guards all below
	limits  Limits
	members map[*Process]*part
	joined  int           // members so far
	gone    time.Duration // on the processors, of members that have ended since the agent's own began
}

// part is what one process takes of a Share.
type part struct {
	usage
	own   bool // it is the agent's own
	order int  // in which they joined
}

// NewShare is the Share of an agent, without members.
func NewShare(agent string, l Limits) *Share {
	return &Share{name: agent, limits: l, members: map[*Process]*part{}}
}

// SetLimits holds the members to other limits from now on.
func (s *Share) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// Empty reports whether no process is a member.
func (s *Share) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members) == 0
}

func (s *Share) shared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members) > 1
}

// join makes p a member until leave.
func (s *Share) join(p *Process, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own {
		s.gone = 0
	}
	s.joined++
	s.members[p] = &part{own: own, order: s.joined}
}

// leave ends the membership of p, which has ended. Its tree took that much time on the
// processors.
func (s *Share) leave(p *Process, cpu time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[p]; m != nil && !m.own {
		s.gone += max(m.cpu, cpu)
	}
	delete(s.members, p)
}

// note accounts for what p takes, and names the limit for which it must end; "" for
// none. One that has just started ends rather than those that work, unless it is the
// agent's own.
func (s *Share) note(p *Process, u usage, starting bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[p]
	if m == nil {
		return ""
	}
	m.usage = u
	sum := usage{cpu: s.gone, bounded: u.bounded && len(s.members) == 1}
	for _, one := range s.members {
		sum.memory += one.memory
		sum.tasks += one.tasks
		sum.cpu += one.cpu
	}
	for _, one := range []struct {
		limit Limits // one of them alone
		of    func(*part) int64
	}{
		{Limits{MemoryBytes: s.limits.MemoryBytes}, func(m *part) int64 { return m.memory }},
		{Limits{Processes: s.limits.Processes}, func(m *part) int64 { return m.tasks }},
		{Limits{CPUSeconds: s.limits.CPUSeconds}, func(m *part) int64 { return int64(m.cpu) }},
	} {
		if name := one.limit.exceeded(sum); name != "" && (starting && !m.own || s.largest(one.of) == m) {
			return fmt.Sprintf("%s of %s and the agents that it created", name, s.name)
		}
	}
	return ""
}

// largest is the member that takes most, the last to join of those that take the same;
// the agent's own only where there is no other.
func (s *Share) largest(of func(*part) int64) *part {
	return slices.MaxFunc(slices.Collect(maps.Values(s.members)), func(a, b *part) int {
		switch {
		case a.own != b.own && a.own:
			return -1
		case a.own != b.own:
			return 1
		case of(a) != of(b):
			return int(min(max(of(a)-of(b), -1), 1))
		default:
			return a.order - b.order
		}
	})
}
