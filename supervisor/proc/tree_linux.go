package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// tree is a process with all that comes of it.
type tree struct {
	guard  *Guard // nil: nothing but the group is ours
	number uint64 // its tag's; 0 without a guard that has one
	cgroup *cgroup
	limits Limits
	pid    int
	ledger ledger
}

// startTree starts cmd in a group of its own, to be killed when we end, within its
// limits and its guard's reach. The file is a pidfd, nil if the kernel has none.
func startTree(cmd *exec.Cmd, g *Guard, l Limits) (t *tree, pidfd *os.File, err error) {
	t = &tree{guard: g, limits: l}
	fd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &fd}
	err = t.start(cmd)
	t.cgroup.started()
	if err != nil {
		t.cgroup.remove()
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, nil, err
	}
	if fd < 0 {
		return t, nil, nil
	}
	return t, os.NewFile(uintptr(fd), "pidfd"), nil
}

// start starts the process and bounds it before it has come to anything.
func (t *tree) start(cmd *exec.Cmd) error {
	if t.guard != nil {
		t.guard.mu.Lock()
		defer t.guard.mu.Unlock()
		if t.guard.closed {
			return errors.New("the guard is closed")
		}
		if err := t.mark(cmd); err != nil {
			return err
		}
	}
	err := onSpawner(func() error {
		if err := cmd.Start(); err != nil {
			return err
		}
		return t.bound(cmd.Process.Pid)
	})
	if err != nil {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // or it is dead already
			_ = cmd.Wait()
		}
		return err
	}
	t.pid = cmd.Process.Pid
	if t.guard != nil {
		t.guard.started[t.pid] = true
		t.guard.reaped[t.number] = 0
	}
	return nil
}

// mark gives the process a number of the guard's tag and, where there are
// cgroups, one of its own.
func (t *tree) mark(cmd *exec.Cmd) (err error) {
	g := t.guard
	if g.tag == 0 {
		return nil
	}
	g.next++
	t.number = g.tag.Number(g.next)
	cmd.Env = append(cmd.Env, proctree.LineageVariable+"="+strconv.FormatUint(t.number, 10))
	if g.cgroups == nil {
		return nil
	}
	if t.cgroup, err = g.cgroups.make(t.number, t.limits); err != nil {
		return err
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(t.cgroup.file.Fd())
	return nil
}

// bound puts the tag and the limits of single processes on a new process, for
// all that it will start. Where the machine has no memory left, the kernel ends it
// before us.
func (t *tree) bound(pid int) error {
	_ = proctree.RaiseOOMScore(pid, 2) // it hides itself already, or is another user's: then it is ended as we are
	if t.number != 0 {
		if err := proctree.SetLineage(pid, t.number); err != nil {
			return err
		}
	}
	limits := map[int]uint64{unix.RLIMIT_NOFILE: t.limits.OpenFiles}
	if t.limits.MemoryBytes > 0 && (t.cgroup == nil || !t.cgroup.memory) {
		limits[unix.RLIMIT_DATA] = t.limits.MemoryBytes + reserve
	}
	for resource, value := range limits {
		if value == 0 {
			continue
		}
		var now unix.Rlimit
		err := unix.Prlimit(pid, resource, nil, &now)
		if err == nil {
			value := min(value, now.Max)
			err = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: value, Max: value}, nil)
		}
		if err != nil {
			return fmt.Errorf("limit it: %w", err)
		}
	}
	return nil
}

// reap takes note of the end of the process; dead says that it has ended.
func (t *tree) reap(cmd *exec.Cmd, dead bool) {
	if !dead {
		cmd.Wait() //nolint:errcheck // ProcessState says it all
	}
	if t.guard != nil {
		t.guard.mu.Lock() // so that its id is not given to another before it is forgotten
		defer t.guard.mu.Unlock()
		delete(t.guard.started, t.pid)
	}
	if dead {
		cmd.Wait() //nolint:errcheck // as above
	}
}

// clear ends what is left of the tree when its process has been reaped. It
// returns the ids of those that it could not end; with an error there may be more.
func (t *tree) clear() (left []int, err error) {
	if t.number == 0 {
		return nil, nil
	}
	left, err = proctree.EndAll(proctree.EndGrace, func(kill bool) ([]int, error) {
		orphans, err := t.guard.adopted(t.isOurs, kill)
		if kill && len(orphans) > 0 {
			t.cgroup.kill()
		}
		return orphans, err
	})
	t.cgroup.remove()
	t.guard.mu.Lock()
	delete(t.guard.reaped, t.number)
	t.guard.mu.Unlock()
	return left, err
}

// breached names a limit that the kernel killed for.
func (t *tree) breached() string {
	if t.cgroup.outOfMemory() {
		return t.limits.memory()
	}
	return ""
}

// usage is what the tree takes at the moment. What the kernel bounds by itself is measured
// only if it is shared with other trees.
func (t *tree) usage(shared bool) usage {
	if t.cgroup == nil {
		return t.measure()
	}
	u := t.cgroup.usage()
	if !shared && (t.cgroup.memory || t.limits.MemoryBytes == 0) && (t.cgroup.tasks || t.limits.Processes == 0) {
		return u
	}
	m := t.measure()
	m.cpu, m.denied, m.bounded = u.cpu, u.denied, t.cgroup.memory
	return m
}

// spent is the time on the processors that the tree took, as far as it is known when its
// process has ended, which took the given time with those that it waited for.
func (t *tree) spent(process time.Duration) time.Duration {
	if t.cgroup != nil {
		return t.cgroup.usage().cpu
	}
	return t.ledger.final(process)
}

// isOurs reports whether a number is that of the tree.
func (t *tree) isOurs(number uint64) bool { return number == t.number }

// maxSample is how long what a process takes is not read again while it does not run. Its
// memory can become less meanwhile, where the machine lacks memory.
const maxSample = time.Minute

// lastUsage is what a process took when it was last read.
type lastUsage struct {
	usage Usage
	clock time.Duration // of the process, before usage was read
	at    time.Time
}

// of is what one process takes now. One that has not run since it was read takes the same.
func (s *lastUsage) of(pid int) Usage {
	clock, err := proctree.CPUClock(pid)
	if err == nil && clock == s.clock && time.Since(s.at) < maxSample {
		return s.usage
	}
	stat, _ := proctree.ReadStat(pid) // zero once it is gone
	*s = lastUsage{usage: Usage{CPU: stat.CPU, MemoryBytes: stat.Memory}, clock: clock, at: time.Now()}
	return s.usage
}

// adopted lists the processes with a wanted number that came to us and live, and
// takes note of those that have ended. It may kill them, with their groups. With an
// error there may be more.
func (g *Guard) adopted(wanted func(uint64) bool, kill bool) ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()         // nobody else is reaped meanwhile
	numbers := map[int]uint64{} // of those that may be reaped
	return proctree.ReapOrphans(func(pid int) bool {
		if g.started[pid] {
			return false
		}
		numbers[pid] = proctree.LineageOf(pid)
		return wanted(numbers[pid])
	}, kill, g.started, func(pid int, cpu time.Duration) {
		if _, lives := g.reaped[numbers[pid]]; lives {
			g.reaped[numbers[pid]] += cpu
		}
	})
}

// reapedOf is the time on the processors of processes with a number that came to us and
// were reaped.
func (g *Guard) reapedOf(number uint64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reaped[number]
}
