package proctree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillPatience is how long processes that were killed are waited for. One that
// takes longer hangs in the kernel.
const KillPatience = 2 * time.Second

// relook is how long EndAll waits for those that it killed before it looks for
// others.
const relook = 10 * time.Millisecond

// SetSubreaper makes this process the parent of orphans that descend from it, or
// does so no more.
func SetSubreaper(on bool) error {
	var value uintptr
	if on {
		value = 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0); err != nil {
		return fmt.Errorf("set PR_SET_CHILD_SUBREAPER: %w", err)
	}
	return nil
}

// EndAll returns when step finds no process any more. After grace, step is told to
// kill those that it finds. EndAll returns those that are left KillPatience later,
// and the last error of step: with one there may be more.
func EndAll(grace time.Duration, step func(kill bool) (left []int, err error)) ([]int, error) {
	patience := time.Now().Add(grace)
	limit := patience.Add(KillPatience)
	for {
		now := time.Now()
		killing := !now.Before(patience)
		left, err := step(killing)
		if len(left) == 0 && err == nil || now.After(limit) {
			return left, err
		}
		until := patience
		if killing {
			until = now.Add(relook)
		}
		AwaitAny(left, until)
	}
}

// AwaitAny returns when one of the processes has ended, or at the given time.
func AwaitAny(pids []int, until time.Time) {
	var fds []unix.PollFd
	defer func() {
		for _, fd := range fds {
			unix.Close(int(fd.Fd))
		}
	}()
	for _, pid := range pids[:min(len(pids), 64)] { // each costs a descriptor
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			return
		}
		if err == nil {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	for {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Exited reports whether what waitid(2) told of a process is its end. Of a process
// that made its parent its tracer, waitid tells stops too.
func Exited(info unix.Siginfo) bool {
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_KILLED and CLD_DUMPED
	return info.Signo != 0 && info.Code >= exited && info.Code <= dumped
}

// ReapChildren reaps the wanted children of this process that have ended, and
// returns those that live; with an error there may be more. With kill, it kills
// them as KillChild does. Nobody else may reap children meanwhile: so an id stays
// with its process.
func ReapChildren(wanted func(pid int) bool, kill bool, spared map[int]bool) (live []int, err error) {
	for {
		live, reaped, err := reapOnce(wanted, kill, spared)
		if len(live) > 0 || !reaped || err != nil { // what one left that has been reaped has come to us since
			return live, err
		}
	}
}

// reapOnce is one look at our children.
func reapOnce(wanted func(pid int) bool, kill bool, spared map[int]bool) (live []int, reaped bool, err error) {
	// The kernel may leave some out of a list while others end: it is read twice.
	children, err := Children(os.Getpid())
	if err == nil {
		var more []int
		more, err = Children(os.Getpid())
		children = append(children, more...)
	}
	slices.Sort(children)
	for _, pid := range slices.Compact(children) {
		if !wanted(pid) {
			continue
		}
		if kill {
			KillChild(pid, spared)
		}
		var status syscall.WaitStatus
		told, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		ended := told == pid && (status.Exited() || status.Signaled()) // one that made us its tracer may have stopped
		if ended || errors.Is(err, syscall.ECHILD) {
			reaped = reaped || ended
			continue
		}
		live = append(live, pid)
	}
	return live, reaped, err
}

// KillChildren kills all children of this process. It returns an error if there
// may be more.
func KillChildren() error {
	pids, err := Children(os.Getpid())
	for _, pid := range pids {
		KillChild(pid, nil)
	}
	return err
}

// KillChild kills a child of this process that was not reaped, with its process
// group: who forks in a group of its own does not get away by dying first. Our own
// group, and those that are spared, are not killed.
func KillChild(pid int, spared map[int]bool) {
	group, err := unix.Getpgid(pid)
	_ = unix.Kill(pid, unix.SIGKILL) // it is a zombie at worst; or another user's, which we cannot kill
	if err == nil && group > 1 && group != unix.Getpgrp() && !spared[group] {
		_ = unix.Kill(-group, unix.SIGKILL) // there may be nobody in it but a zombie
	}
}
