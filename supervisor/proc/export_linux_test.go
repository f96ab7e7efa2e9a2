package proc

import "nexus.internal/protocol/ratelimit"

// WatchdogStopped is closed once the guard has asked its watchdog to end.
func WatchdogStopped(g *Guard) <-chan struct{} { return g.watchdog.quit }

// OutputRate is what may come on stdout.
func OutputRate(l Limits) ratelimit.Rate { return l.outputRate() }

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

// Remove closes its files and forgets it.
func (c *Cgroup) Remove() { c.g.remove() }

// OutOfMemory reports whether the kernel killed in it for its limit.
func (c *Cgroup) OutOfMemory() bool { return c.g.outOfMemory() }

// Exceeded names the limit that it knows to be exceeded.
func (c *Cgroup) Exceeded(l Limits) string { return l.exceeded(c.g.usage()) }
