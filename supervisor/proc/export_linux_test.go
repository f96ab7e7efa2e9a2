package proc

import (
	"time"

	"nexus.internal/protocol/ratelimit"
)

// WatchdogStopped is closed once the guard has asked its watchdog to end.
func WatchdogStopped(g *Guard) <-chan struct{} { return g.watchdog.quit }

// OutputRate is what may come on stdout.
func OutputRate(l Limits) ratelimit.Rate { return l.outputRate() }

// ForgoCgroups has a guard start processes as where no cgroups can be made.
func ForgoCgroups(g *Guard) {
	if g.cgroups != nil {
		g.cgroups.remove()
		g.cgroups = nil
	}
}

// CPUOfTree is the time on the processors that a process took so far with all that came of it.
func CPUOfTree(p *Process) time.Duration { return p.tree.usage(false).cpu }

// Cgroup is one with limits in a directory that stands for the server's.
type Cgroup struct{ g *cgroup }

// MakeCgroup makes one for the given limits, as if the kernel kept both kinds.
func MakeCgroup(dir string, l Limits) (*Cgroup, error) {
	g, err := (&cgroups{dir: dir, memory: true, tasks: true}).make(7, l)
	if err != nil {
		return nil, err
	}
	g.started()
	return &Cgroup{g}, nil
}

// Start starts a process as if it were in it: the kernel does not bound it in fact, and it is
// looked at by Look alone.
func (c *Cgroup) Start(s Spec) (*Process, error) {
	l, shares := s.Limits, s.Shares
	s.Limits, s.Shares = Limits{}, nil
	p, err := begin(s)
	if err != nil {
		return nil, err
	}
	p.limits, p.shares, p.tree.limits, p.tree.cgroup = l, shares, l, c.g
	for i, share := range shares {
		share.join(p, i == 0)
	}
	go p.pump()
	go p.wait()
	return p, nil
}

// Remove closes its files and forgets it.
func (c *Cgroup) Remove() { c.g.remove() }

// OutOfMemory reports whether the kernel killed in it for its limit.
func (c *Cgroup) OutOfMemory() bool { return c.g.outOfMemory() }

// Exceeded names the limit that it knows to be exceeded.
func (c *Cgroup) Exceeded(l Limits) string { return l.exceeded(c.g.usage()) }
