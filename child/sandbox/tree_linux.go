package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanPatience is how long orphans that were killed are waited for: one may
// hang in the kernel.
const orphanPatience = 2 * time.Second

// sweepPause is between attempts to list processes that fail.
const sweepPause = 10 * time.Millisecond

// adopted reports, under the lock of wardens, that Adopt was called.
var adopted bool

// Adopt makes this process the parent of what a killed warden leaves behind, so
// that it can be killed. A process that has adopted must start all its processes
// by this package: others would be taken for such orphans.
func Adopt() error {
	wardens.mu.Lock()
	defer wardens.mu.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	adopted = true
	return nil
}

// reapOrphans makes the warden the parent of what its program leaves behind.
func reapOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // any kernel with Landlock has it
}

// wardenAttr wakes a warden that somebody has stopped when we die, so that it
// finds itself alone and ends its program. The kernel sends this whenever the
// thread that started it ends; to one that runs it means nothing.
func wardenAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// family is the program of a warden with all that comes of it. Its processes
// become the warden's children as those between them and it die.
type family struct {
	program int

	mu     sync.Mutex // guards the rest, and is held where children are listed or reaped: no id changes hands meanwhile
	over   bool
	reaped bool // the program's id may be another's
}

// end kills the program and all that came of it; wait sees it through.
func (f *family) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	_ = f.sweep() // then wait goes on, as the program has ended
}

// sweep kills what there is. If that cannot be found out, it kills what is
// known, the program with its group.
func (f *family) sweep() error {
	_, err := killChildren(nil)
	if err != nil && !f.reaped {
		killGroup(f.program)
	}
	return err
}

// wait returns when there is no process left, and tells when the program has
// exited. Then the others are killed. While it cannot find them it goes on
// trying: whoever started us knows how long, or is gone.
func (f *family) wait(exited func(syscall.WaitStatus)) {
	var failed error
	for left := true; left; {
		if failed != nil {
			<-time.After(sweepPause)
		} else if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
			return // nobody is reaped but under the lock
		}
		f.mu.Lock()
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			left = !errors.Is(err, syscall.ECHILD)
			if pid <= 0 {
				break
			}
			if status.Stopped() {
				letRun(pid, status.StopSignal())
				continue
			}
			if pid == f.program {
				exited(status)
				f.over, f.reaped = true, true
			}
		}
		failed = nil
		if f.over && left {
			failed = f.sweep()
		}
		f.mu.Unlock()
	}
}

// letRun lets a process go on that made the warden its tracer (PTRACE_TRACEME) and
// has stopped for it. One that cannot be let go is killed: nobody else could
// continue it.
func letRun(pid int, sig syscall.Signal) {
	if sig == syscall.SIGTRAP || sig == syscall.SIGSTOP {
		sig = 0 // they tell a tracer of exec, and that it may begin
	}
	failed := make(chan bool)
	starter <- func() {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0, 0)
		failed <- errno != 0
	}
	if <-failed {
		_ = unix.Kill(pid, unix.SIGKILL) // or it is gone
	}
}

// maxStops is how often a warden may be stopped before it is taken for one that
// its program holds.
const maxStops = 8

// keepRunning continues a warden that is stopped, which would neither see its
// program's end nor obey us, and returns when it has ended. The warden is reaped
// by the caller, afterwards.
func keepRunning(pid int) {
	for stops := 0; ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || ended(info):
			return
		}
		sig := unix.SIGCONT
		if stops++; stops > maxStops {
			sig = unix.SIGKILL
		}
		_ = unix.Kill(pid, sig) // a zombie at worst
	}
}

// ended reports whether what waitid tells of a process is its end.
func ended(info unix.Siginfo) bool {
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_KILLED and CLD_DUMPED; others tell of stops
	return info.Code >= exited && info.Code <= dumped
}

// killChildren kills the children of this process but those that are spared,
// each with its group. It returns those that it killed, and an error if there
// may be more.
func killChildren(spare map[int]bool) ([]int, error) {
	raiseFiles()
	pids, err := children()
	var killed []int
	for _, pid := range pids {
		if !spare[pid] {
			killGroup(pid)
			killed = append(killed, pid)
		}
	}
	return killed, err
}

// killGroup kills a child of this process with its process group: who forks in
// a group of its own does not get away by dying first. The group holds nobody
// else, as no child is of our session.
func killGroup(pid int) {
	group, err := unix.Getpgid(pid)
	_ = unix.Kill(pid, unix.SIGKILL) // it is a zombie at worst; or somebody else's, which no means of ours can kill
	if err == nil && group > 1 && group != unix.Getpgrp() {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}

// raiseFiles sets the number of files that we may open back to the most that it
// can be: the warden has that of its program, which an unconfined one may lower.
func raiseFiles() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // what cannot be listed then is an error
	}
}

// children lists the processes whose parent is this one, zombies included. With
// an error there may be more.
func children() ([]int, error) {
	const tasks = "/proc/self/task"
	threads, failed := os.ReadDir(tasks)
	var pids []int
	listed := false
	for _, thread := range threads {
		data, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		switch {
		case err == nil:
			listed = true
		case !gone(err): // gone is the thread, or the kernel keeps no lists
			failed = err
		}
		for _, field := range bytes.Fields(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if !listed && failed == nil {
		return searchChildren()
	}
	return pids, failed
}

// searchChildren is children for kernels that keep no list.
func searchChildren() ([]int, error) {
	entries, failed := os.ReadDir("/proc")
	us := strconv.Itoa(os.Getpid())
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil && !gone(err) {
			failed = err
		}
		// PID (NAME) STATE PARENT …, where the name may hold anything.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == us {
			pids = append(pids, pid)
		}
	}
	return pids, failed
}

// gone reports whether what could not be read in /proc is not there any more.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// killOrphans kills what killed wardens left to us, and waits for its end.
func killOrphans(known map[int]bool) {
	if !adopted {
		return
	}
	deadline := time.Now().Add(orphanPatience)
	for time.Now().Before(deadline) {
		orphans, err := killChildren(known)
		if err != nil {
			<-time.After(sweepPause)
		} else if len(orphans) == 0 {
			return
		}
		for _, pid := range orphans {
			reap(pid, deadline)
		}
	}
}

// reap waits for a child of ours that was killed.
func reap(pid int, deadline time.Time) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
		for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
			if n > 0 || !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // not ended: the next round finds it again
}
