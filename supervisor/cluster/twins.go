package cluster

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// twinAfter is for how long two processes must have said that they are one machine, by turns: what a server said before it was started again may be heard a moment late.
	twinAfter = 2 * beatEvery
	// twinFor is how long two servers are known to be one machine after the last sign of it, and twinSaid how often that is logged.
	twinFor, twinSaid = 2 * lostAfter, time.Minute
)

// twin is what is known of two servers that may be one machine.
type twin struct {
	processes [2]string // the last ones that said that they are it
	since     time.Time // when the second one of them did first
	seen      time.Time // when it was certain last that both are there; zero for never
	said      time.Time // when that was logged last
}

// hearTwin takes that a process says that it is a machine which another one said to be before. mu is held.
func hearTwin(n *Node, name, before, now string, at time.Time) {
	t := n.twins[name]
	if t == nil {
		t = &twin{}
		n.twins[name] = t
	}
	if p := [2]string{before, now}; t.processes != p && t.processes != [2]string{now, before} {
		t.processes, t.since = p, at
	} else if at.Sub(t.since) >= twinAfter {
		noteTwin(n, name, at)
	}
}

// noteTwin takes that two servers are one machine, this one or another: the servers of NATS of both do not connect to each other, so that they hear it of the others. mu is held.
func noteTwin(n *Node, name string, at time.Time) {
	t := n.twins[name]
	if t == nil {
		t = &twin{}
		n.twins[name] = t
	}
	if t.seen = at; at.Sub(t.said) <= twinSaid {
		return
	}
	t.said = at
	if name == n.o.Machine {
		n.log.Error("another server is this machine, too: each agent of one is the other's", zap.String("machine", name))
	} else {
		n.log.Error("two servers are one machine: each agent of one is the other's", zap.String("machine", name))
	}
}

// Twins are the machines, this one or others, that two servers are, by name. What is asked of such a machine, either of them may answer.
func Twins(n *Node) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, t := range n.twins {
		if time.Since(t.seen) <= twinFor {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
