package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

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
	if err := unix.SetNonblock(fd, true); err != nil { // else it would not be polled
		unix.Close(fd)
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
// all that it will start.
func (t *tree) bound(pid int) error {
	if t.number != 0 {
		if err := proctree.SetLineage(pid, t.number); err != nil {
			return err
		}
	}
	limits := map[int]int64{unix.RLIMIT_NOFILE: t.limits.OpenFiles}
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
			value := min(uint64(value), now.Max)
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
	return left, err
}

// breached names a limit that the kernel killed for.
func (t *tree) breached() string {
	if t.cgroup.outOfMemory() {
		return t.limits.memory()
	}
	return ""
}

// usage is what the tree takes at the moment.
func (t *tree) usage() usage {
	var u usage
	if t.cgroup != nil {
		u = t.cgroup.usage()
		if (t.cgroup.memory || t.limits.MemoryBytes == 0) && (t.cgroup.tasks || t.limits.Processes == 0) {
			return u
		}
	}
	cpu := u.cpu
	pids := []int{t.pid}
	if t.number != 0 {
		adopted, _ := t.guard.adopted(t.isOurs, false) // those that could be listed
		pids = append(pids, adopted...)
	}
	below, err := proctree.Descendants(pids...) // those that could be listed
	pids = append(pids, below...)
	if proctree.Leased(err) && t.number != 0 { // a lease hides some, but not their numbers
		marked, _ := proctree.OfLineage(t.isOurs) // as above
		pids = append(pids, marked...)
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		s, err := proctree.ReadStat(pid) // or it is gone
		memory, hidden := proctree.Memory(pid)
		u.tasks += s.Threads
		u.cpu += s.CPU
		u.memory += memory
		u.hidden = u.hidden || proctree.Leased(err) || proctree.Leased(hidden)
	}
	if t.cgroup != nil {
		u.cpu = cpu
		if t.cgroup.memory {
			u.memory = 0
		}
	}
	return u
}

// isOurs reports whether a number is that of the tree.
func (t *tree) isOurs(number uint64) bool { return number == t.number }

// usageOf is what one process takes.
func usageOf(pid int) Usage {
	s, _ := proctree.ReadStat(pid) // zero once it is gone
	return Usage{CPU: s.CPU, MemoryBytes: s.Memory}
}

// adopted lists the processes with a wanted number that came to us and live, and
// takes note of those that have ended. It may kill them, with their groups. With an
// error there may be more.
func (g *Guard) adopted(wanted func(uint64) bool, kill bool) ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock() // nobody else is reaped meanwhile
	return proctree.ReapChildren(func(pid int) bool {
		return !g.started[pid] && wanted(proctree.LineageOf(pid))
	}, kill, g.started)
}
