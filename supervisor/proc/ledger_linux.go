package proc

import (
	"sync"
	"time"

	"nexus.internal/protocol/proctree"
)

// ledger keeps what a tree without a cgroup has taken so far. The kernel adds the time on
// the processors of a process that has ended to that of its parent only if the parent
// waits for it, which one that ignores SIGCHLD does not. So what was read of a process
// stays counted when it is gone, unless those that wait for others took over as much.
type ledger struct {
	mu     sync.Mutex    // guards all below; held during a measurement
	known  []*measured   // as of the last measurement, ancestors before descendants
	reaped time.Duration // on the processors, of orphans that the guard reaped, as of then
	lost   time.Duration // on the processors, of those that are gone and nobody waited for
	cpu    time.Duration // of the whole tree, as of the last measurement
}

// measured is what was read of one process.
type measured struct {
	proctree.Process
	stat   proctree.Stat
	memory int64 // bytes
	unread bool  // the memory could not be read
}

// maxReadings bounds how often a tree is read in a measurement while processes of it end.
const maxReadings = 4

// measure reads what the tree takes now.
func (t *tree) measure() usage {
	l := &t.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	r := t.read()
	var gone map[*measured]bool // before the last reading began: those that waited for them were read since
	for n := 1; n < maxReadings && len(r.gone) > len(gone); n++ {
		gone = r.gone
		r = t.read()
	}
	u := usage{refused: r.refused}
	for _, m := range r.found {
		u.tasks += m.stat.Threads
		if refused := m.readMemory(); refused != "" {
			u.refused = refused
		}
		u.memory += m.memory
	}
	u.cpu = l.enter(r, gone)
	return u
}

// enter adds a reading to the ledger, and returns the time on the processors that the
// tree took so far. It never falls. Those that ended during the last reading count as
// waited for.
func (l *ledger) enter(r *reading, gone map[*measured]bool) time.Duration {
	sum, taken := r.reaped, r.reaped-l.reaped // taken over from those that have ended
	for _, m := range r.found {
		sum += m.stat.CPU
		if old := r.known[m.Process]; old != nil {
			taken += m.stat.Waited - old.stat.Waited
		}
	}
	var ended time.Duration
	for m := range gone {
		ended += m.stat.CPU
	}
	l.lost += max(ended-taken, 0)
	l.known, l.reaped = r.found, r.reaped
	l.cpu = max(l.cpu, l.lost+sum)
	return l.cpu
}

// final is the time on the processors of the tree when its process has ended, which took
// the given time with those that it waited for.
func (l *ledger) final(process time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.cpu, l.lost+l.reaped+process)
}

// reading is one pass over the processes of a tree. Ancestors are read before
// descendants: so no time is read twice, of a process and of one that waited for it.
type reading struct {
	known   map[proctree.Process]*measured // of the ledger
	found   []*measured
	listed  map[int]bool
	gone    map[*measured]bool // of known
	reaped  time.Duration
	refused string // usage.refused
}

// read reads the processes that can be listed, and those of the ledger that cannot.
func (t *tree) read() *reading {
	r := &reading{known: map[proctree.Process]*measured{}, listed: map[int]bool{}, gone: map[*measured]bool{}}
	for _, m := range t.ledger.known {
		r.known[m.Process] = m
	}
	roots := []int{t.pid}
	if t.number != 0 {
		adopted, _ := t.guard.adopted(t.isOurs, false) // those that could be listed
		roots = append(roots, adopted...)
		r.reaped = t.guard.reapedOf(t.number)
	}
	below, err := proctree.Descendants(roots...) // those that could be listed
	pids := append(roots, below...)
	if err != nil && t.number != 0 { // a lease hides some, for example, but not their numbers
		marked, _ := proctree.OfLineage(t.isOurs) // as above
		pids = append(pids, marked...)
	}
	t.add(r, pids)
	found := map[proctree.Process]bool{}
	for _, m := range r.found {
		found[m.Process] = true
	}
	var unlisted []int
	for _, m := range t.ledger.known {
		if found[m.Process] {
			continue
		}
		s, err := proctree.ReadStat(m.PID)
		switch {
		case proctree.Gone(err), err == nil && s.Started != m.Started:
			r.gone[m] = true
		case err != nil: // for want of descriptors, for example: it takes what it took
			r.found = append(r.found, m)
		default:
			r.enter(m.PID, s)
			unlisted = append(unlisted, m.PID)
		}
	}
	below, _ = proctree.Descendants(unlisted...) // as above
	t.add(r, below)
	return r
}

// add reads processes that were listed.
func (t *tree) add(r *reading, pids []int) {
	var fresh []int
	for _, pid := range pids {
		if !r.listed[pid] {
			r.listed[pid] = true
			fresh = append(fresh, pid)
		}
	}
	for _, pid := range fresh {
		s, err := proctree.ReadStat(pid)
		if proctree.Leased(err) {
			r.refused = refusedByLease
		}
		// Its id may be that of another process since it was listed.
		if err == nil && (pid == t.pid || r.listed[s.Parent] || t.number != 0 && t.isOurs(proctree.LineageOf(pid))) {
			r.enter(pid, s)
		}
	}
}

// enter takes note of what was read of a process.
func (r *reading) enter(pid int, s proctree.Stat) {
	m := &measured{Process: proctree.Process{PID: pid, Started: s.Started}, stat: s}
	if old := r.known[m.Process]; old != nil {
		m.memory, m.unread = old.memory, old.unread
		m.stat.CPU, m.stat.Waited = max(s.CPU, old.stat.CPU), max(s.Waited, old.stat.Waited)
	}
	r.listed[pid] = true
	r.found = append(r.found, m)
}

// readMemory reads the memory of the process. It returns how the process refuses that.
func (m *measured) readMemory() (refused string) {
	n, err := proctree.Memory(m.PID)
	switch {
	case err == nil, proctree.Gone(err):
		m.memory, m.unread = n, false
	case proctree.Leased(err):
		return refusedByLease
	case proctree.Restless(err) && m.unread:
		return refusedByThreads
	case proctree.Restless(err):
		m.unread = true
	}
	return ""
}
