package proc

import (
	"strings"

	"go.uber.org/zap"
)

// Mechanisms says what on this machine ends the processes that we started and all
// that came of them.
type Mechanisms struct {
	// Pdeathsig: the kernel kills the processes that we started with us.
	Pdeathsig bool
	// Tag: whatever comes of a process of ours bears a mark that it cannot take
	// off, and that the next server knows.
	Tag bool
	// Subreaper: what a process leaves behind when it ends comes to us.
	Subreaper bool
	// Watchdog: a process of ours outlives us and ends what is left.
	Watchdog bool
	// CgroupKill: the kernel ends all of a process's tree at once.
	CgroupKill bool
	// CgroupMemory: the kernel bounds the memory of a process's tree.
	CgroupMemory bool
	// CgroupTasks: the kernel bounds the number of its processes.
	CgroupTasks bool
	// Reasons say why others of them are not there, a sentence each.
	Reasons []string
}

// String is the names of those that are there, and the reasons.
func (m Mechanisms) String() string {
	var names []string
	for _, means := range []struct {
		name  string
		there bool
	}{
		{"pdeathsig", m.Pdeathsig},
		{"tag", m.Tag},
		{"subreaper", m.Subreaper},
		{"watchdog", m.Watchdog},
		{"cgroup.kill", m.CgroupKill},
		{"memory.max", m.CgroupMemory},
		{"pids.max", m.CgroupTasks},
	} {
		if means.there {
			names = append(names, means.name)
		}
	}
	text := strings.Join(names, " ")
	if text == "" {
		text = "none"
	}
	if len(m.Reasons) > 0 {
		text += " (" + strings.Join(m.Reasons, "; ") + ")"
	}
	return text
}

// GuardOptions are what a guard needs.
type GuardOptions struct {
	// Dir remembers the servers of a home, so that the next one finds what one
	// that was killed has left. It is made if it is missing (0700). All servers of
	// a user may share it.
	Dir string
	// Log hears of what had to be ended; nil means nobody does.
	Log *zap.Logger
}

// Guard sees to it that nothing is left of processes that were started with
// it (Spec.Guard): when they end, when they are stopped, and when we are killed. It
// belongs to the whole of our process, so there is one of it. Its methods
// are safe for concurrent use.
type Guard struct {
	log        *zap.Logger
	mechanisms Mechanisms
	guardSystem
}

// Mechanisms says what ends processes here. It does not change.
func (g *Guard) Mechanisms() Mechanisms { return g.mechanisms }
