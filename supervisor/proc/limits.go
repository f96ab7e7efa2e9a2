package proc

import (
	"fmt"
	"strings"
	"time"

	"nexus.internal/protocol/ratelimit"
)

// Limits bounds what a process and all that comes of it may take. Zero fields
// are no limit. Who exceeds one is killed, with all of its tree, and Exit.Limit
// names it; but for OpenFiles, where the call that goes too far fails.
type Limits struct {
	// MemoryBytes bounds the memory of the whole tree, files that are mapped
	// aside. Where a cgroup keeps it, at any moment; elsewhere as seen every
	// SampleEvery, each page counted for each process that has it, and no process
	// can have more than this and 256 MiB even in between.
	MemoryBytes int64
	// Processes is how many processes and threads the tree may have, as seen
	// every SampleEvery. nexus-child alone has about 12, each program that it
	// runs about 8 more.
	Processes int64
	// OpenFiles is how many files each process may have open.
	OpenFiles int64
	// CPUSeconds is the time on the processors of the whole tree, from the
	// start on, as seen every SampleEvery.
	CPUSeconds int64
	// OutputBytesPerSecond bounds what is read from Stdout. Ten seconds' worth,
	// and 4 MiB at least, may come at once.
	OutputBytesPerSecond int64
}

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
	hidden bool // a lease keeps a process of it from being measured
}

// exceeded names the limit that is exceeded, "" for none. A tree that cannot be measured
// exceeds any.
func (l Limits) exceeded(u usage) string {
	switch {
	case u.hidden:
		return "measurement refused (a lease on a file in /proc)"
	case l.MemoryBytes > 0 && u.memory > l.MemoryBytes:
		return l.memory()
	case l.Processes > 0 && (u.tasks > l.Processes || u.denied):
		return fmt.Sprintf("process limit %d", l.Processes)
	case l.CPUSeconds > 0 && u.cpu.Seconds() > float64(l.CPUSeconds):
		return fmt.Sprintf("CPU limit %d s", l.CPUSeconds)
	}
	return ""
}

func (l Limits) memory() string { return "memory limit " + inBytes(l.MemoryBytes) }

// sampled reports whether the tree is to be looked at.
func (l Limits) sampled() bool { return l.MemoryBytes > 0 || l.Processes > 0 || l.CPUSeconds > 0 }

// check says what cannot be meant.
func (l Limits) check() error {
	for _, n := range []int64{l.MemoryBytes, l.Processes, l.OpenFiles, l.CPUSeconds, l.OutputBytesPerSecond} {
		if n < 0 || n > mostLimit {
			return fmt.Errorf("a limit of %d: want 0 to %d", n, int64(mostLimit))
		}
	}
	return nil
}

// inBytes is a number of bytes for people: exact, in the largest unit that is.
func inBytes(n int64) string {
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
