package sandbox

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// sweepPause is between attempts to list processes that fail.
const sweepPause = 10 * time.Millisecond

// adopted reports, under the lock of reapers, that Adopt was called.
var adopted bool

// Adopt makes this process the parent of what a killed reaper leaves behind, so
// that it can be killed. A process that has adopted must start all its processes
// by this package: others would be taken for such orphans.
func Adopt() error {
	reapers.mu.Lock()
	defer reapers.mu.Unlock()
	if err := proctree.SetSubreaper(true); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	adopted = true
	return nil
}

// reapOrphans makes the reaper the parent of what its program leaves behind.
func reapOrphans() { _ = proctree.SetSubreaper(true) } // any kernel with Landlock can

// reaperAttr wakes a reaper that somebody has stopped when we die, so that it
// finds itself alone and ends its program. The kernel sends this whenever the
// thread that started it ends; to one that runs it means nothing.
func reaperAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// askForContinue is what reaperAttr asks for, of a reaper that a spawner has started.
func askForContinue() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0, 0) }

// descendants are the program of a reaper with all that comes of it. Its processes
// become the reaper's children as those between them and it die.
type descendants struct {
	program int

	mu     sync.Mutex // guards the rest, and is held where children are listed or reaped: no id changes hands meanwhile
	over   bool
	reaped bool // the program's id may be another's
}

// end kills the program and all that came of it; wait sees it through.
func (d *descendants) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	_ = d.sweep() // then wait goes on, as the program has ended
}

// sweep kills what there is. If that cannot be found out, it kills what is
// known, the program with its group.
func (d *descendants) sweep() error {
	raiseFiles()
	err := proctree.KillChildren()
	if err != nil && !d.reaped {
		proctree.KillChild(d.program, nil)
	}
	return err
}

// wait returns when there is no process left, and tells when the program has
// exited. Then the others are killed. While it cannot find them it goes on
// trying: the process that started us knows how long, or is gone.
func (d *descendants) wait(exited func(syscall.WaitStatus)) {
	var failed error
	for left := true; left; {
		if failed != nil {
			<-time.After(sweepPause)
		} else if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
			return // nobody is reaped but under the lock
		}
		d.mu.Lock()
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
			if pid == d.program {
				exited(status)
				d.over, d.reaped = true, true
			}
		}
		failed = nil
		if d.over && left {
			failed = d.sweep()
		}
		d.mu.Unlock()
	}
}

// letRun lets a process go on that made the reaper its tracer (PTRACE_TRACEME) and
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

// maxStops is how often a reaper may be stopped before it is taken for one that
// its program holds.
const maxStops = 8

// keepRunning continues a reaper that is stopped, which would neither see its
// program's end nor obey us, and returns when it has ended. The reaper is reaped
// by the caller, afterwards. It sets held before it kills a reaper.
func keepRunning(pid int, held *atomic.Bool) {
	for stops := 0; ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || proctree.Exited(info):
			return
		}
		sig := unix.SIGCONT
		if stops++; stops > maxStops {
			held.Store(true)
			sig = unix.SIGKILL
		}
		_ = unix.Kill(pid, sig) // a zombie at worst
	}
}

// raiseFiles sets the number of files that we may open back to the most that it
// can be: the reaper has that of its program, which an unconfined one may lower.
func raiseFiles() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // what cannot be listed then is an error
	}
}

// killOrphans kills what killed reapers left to us, and waits for its end.
func killOrphans(known map[int]bool) {
	if !adopted {
		return
	}
	_, _ = proctree.EndAll(0, func(kill bool) ([]int, error) { // what is left hangs in the kernel
		raiseFiles()
		return proctree.ReapChildren(func(pid int) bool { return !known[pid] }, kill, known, nil)
	})
}
