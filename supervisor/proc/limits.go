package proc

import (
	"fmt"
	"strings"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// Limits bounds what a process and all that comes of it may take. Who exceeds one is killed,
// with all of its tree, and Exit.Limit names it; but for OpenFiles, where the call that goes too
// far fails. TurnSeconds bounds nothing here.
//
// MemoryBytes is with page tables, files that are mapped aside. Where a cgroup keeps it, it
// holds at any moment; elsewhere as seen every SampleEvery, each page counted for each process
// that has it, and no process can have more than this and 256 MiB even in between. Processes
// and CPUSeconds are as seen every SampleEvery; nexus-child alone has about 12 threads, each
// program that it runs about 8 more. Of OutputBytesPerSecond ten seconds' worth, and 4 MiB at
// least, may come at once.
type Limits protocol.ProcessLimits

// SampleEvery is how often a tree with limits is looked at.
const SampleEvery = 500 * time.Millisecond

const (
	// mostLimit is above all that a machine has.
	mostLimit = 1 << 50
	// reserve is what a process may ask for beyond MemoryBytes without using it,
	// as garbage collectors do. In bytes.
	reserve = 256 << 20
	// leastBurst is what may come on stdout at once in any case, in bytes.
	leastBurst = 4 << 20
	// burstSeconds is how long a process may have been silent to its profit.
	burstSeconds = 10
)

// usage is what a tree takes.
type usage struct {
	memory int64 // bytes
	tasks  int64 // processes and threads
	cpu    time.Duration
	denied bool // a task was refused to it

	bounded bool   // the kernel bounds its memory by itself
	refused string // how a process of it keeps itself from being measured; "" if none does
}

const (
	refusedByLease   = "a lease on a file in /proc"
	refusedByThreads = "threads that end before they can be read"
)

// exceeded names the limit that is exceeded, "" for none. A tree that cannot be measured
// exceeds any.
func (l Limits) exceeded(u usage) string {
	switch {
	case u.refused != "":
		return "measurement refused (" + u.refused + ")"
	case l.MemoryBytes > 0 && !u.bounded && u.memory > int64(l.MemoryBytes):
		return l.memory()
	case l.Processes > 0 && (u.tasks > int64(l.Processes) || u.denied):
		return fmt.Sprintf("process limit %d", l.Processes)
	case l.CPUSeconds > 0 && u.cpu.Seconds() > float64(l.CPUSeconds):
		return fmt.Sprintf("CPU limit %d s", l.CPUSeconds)
	}
	return ""
}

func (l Limits) memory() string { return "memory limit " + inBytes(l.MemoryBytes) }

func (l Limits) sampled() bool { return l.MemoryBytes > 0 || l.Processes > 0 || l.CPUSeconds > 0 }

func (l Limits) check() error {
	for _, n := range []uint64{l.MemoryBytes, l.Processes, l.OpenFiles, l.CPUSeconds, l.OutputBytesPerSecond} {
		if n > mostLimit {
			return fmt.Errorf("a limit of %d: want 0 to %d", n, int64(mostLimit))
		}
	}
	return nil
}

// inBytes is a number of bytes for people: exact, in the largest unit that is.
func inBytes(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

// outOfMemory reports whether a line of stderr says that there is no memory. There
// is no other trace of it where the kernel refuses a process some.
func outOfMemory(line string) bool {
	for _, words := range []string{"out of memory", "cannot allocate memory", "Cannot allocate memory", "MemoryError", "bad_alloc"} {
		if strings.Contains(line, words) {
			return true
		}
	}
	return false
}

// outputRate is what may come on stdout.
func (l Limits) outputRate() ratelimit.Rate {
	perSecond := float64(l.OutputBytesPerSecond)
	return ratelimit.Rate{PerSecond: perSecond, Burst: max(leastBurst, burstSeconds*perSecond)}
}
