package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// tree is a process with all that comes of it.
type tree struct {
	guard  *Guard // nil: nothing but the group is ours
	number uint64 // its tag's; 0 without a guard that has one
	cgroup *cgroup
	limits Limits
	pid    int
}

// plant starts cmd in a group of its own, to be killed when we end, within its
// limits and its guard's reach. The file is a pidfd, nil if the kernel has none.
func plant(cmd *exec.Cmd, g *Guard, l Limits) (t *tree, pidfd *os.File, err error) {
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
	t.number = g.tag.number(g.next)
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
		if err := setTag(pid, t.number); err != nil {
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
// returns the ids of those that it could not end.
func (t *tree) clear() (left []int) {
	if t.number == 0 {
		return nil
	}
	is := func(n uint64) bool { return n == t.number }
	left = endAll(func(kill bool) []int {
		orphans := t.guard.adopted(is, kill)
		if kill && len(orphans) > 0 {
			t.cgroup.kill()
		}
		return orphans
	})
	t.cgroup.remove()
	return left
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
	todo := []int{t.pid}
	if t.number != 0 {
		todo = append(todo, t.guard.adopted(func(n uint64) bool { return n == t.number }, false)...)
	}
	for seen := map[int]bool{}; len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		s, ok := readStat(pid)
		if seen[pid] || !ok {
			continue
		}
		seen[pid] = true
		u.tasks += s.tasks
		u.cpu += s.cpu()
		u.memory += memoryOf(pid)
		todo = append(todo, childrenOf(pid)...)
	}
	if t.cgroup != nil {
		u.cpu = cpu
		if t.cgroup.memory {
			u.memory = 0
		}
	}
	return u
}

// usageOf is what one process takes.
func usageOf(pid int) Usage {
	s, _ := readStat(pid) // zero once it is gone
	return Usage{CPU: s.cpu(), MemoryBytes: s.pages * int64(os.Getpagesize())}
}

// memoryOf is what a process has of memory that no file backs, in bytes.
func memoryOf(pid int) int64 {
	data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // it is gone
	return parseMemory(data)
}

func parseMemory(status []byte) int64 {
	var sum int64
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch string(name) {
		case "RssAnon", "RssShmem", "VmSwap":
			n, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64)
			if err == nil && n > 0 {
				sum += min(n, 1<<50) * 1024
			}
		}
	}
	return sum
}

// childrenOf lists the processes whose parent is the given one, zombies
// included.
func childrenOf(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, _ := os.ReadDir(tasks) // it is gone
	var pids []int
	for _, thread := range threads {
		data, _ := os.ReadFile(filepath.Join(tasks, thread.Name(), "children")) // the thread is gone
		for _, field := range bytes.Fields(data) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// adopted lists the processes with a wanted number that came to us and live, and
// takes note of those that have ended. It may kill them, with their groups: who
// forks does not get away by dying first.
func (g *Guard) adopted(wanted func(uint64) bool, kill bool) []int {
	g.mu.Lock()
	defer g.mu.Unlock() // nobody else is reaped meanwhile, so the ids stay whose they are
	for {
		live, reaped := g.adoptedNow(wanted, kill)
		if len(live) > 0 || !reaped { // what one left that has been reaped has come to us since
			return live
		}
	}
}

// adoptedNow is one look at our children. g.mu is held.
func (g *Guard) adoptedNow(wanted func(uint64) bool, kill bool) (live []int, reaped bool) {
	// The kernel may leave some out of a list while others end: it is read twice.
	children := append(childrenOf(os.Getpid()), childrenOf(os.Getpid())...)
	slices.Sort(children)
	for _, pid := range slices.Compact(children) {
		if g.started[pid] || !wanted(numberOf(pid)) {
			continue
		}
		if group, err := unix.Getpgid(pid); kill && err == nil && group > 1 && group != unix.Getpgrp() && !g.started[group] {
			_ = unix.Kill(-group, unix.SIGKILL) // there may be nobody but a zombie
		}
		ended, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if ended == pid || errors.Is(err, syscall.ECHILD) {
			reaped = reaped || ended == pid
			continue
		}
		if kill {
			_ = unix.Kill(pid, unix.SIGKILL) // it is another user's at worst
		}
		live = append(live, pid)
	}
	return live, reaped
}
