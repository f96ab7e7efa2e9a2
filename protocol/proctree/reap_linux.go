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
// with its process. ended, unless nil, is called for each that it reaps, with the time
// on the processors of that one and of those that it waited for.
func ReapChildren(wanted func(pid int) bool, kill bool, spared map[int]bool, ended func(pid int, cpu time.Duration)) (live []int, err error) {
	return reap(func() ([]int, error) { return Children(os.Getpid()) }, wanted, kill, spared, ended)
}

// ReapOrphans is ReapChildren for the processes that have come to this one as a subreaper,
// and for those that its first thread started. It reads one list, however many threads and
// other children there are.
func ReapOrphans(wanted func(pid int) bool, kill bool, spared map[int]bool, ended func(pid int, cpu time.Duration)) (live []int, err error) {
	return reap(orphans, wanted, kill, spared, ended)
}

func reap(list func() ([]int, error), wanted func(pid int) bool, kill bool, spared map[int]bool, ended func(int, time.Duration)) (live []int, err error) {
	for {
		live, reaped, err := reapOnce(list, wanted, kill, spared, ended)
		if len(live) > 0 || !reaped || err != nil { // what one left that has been reaped has come to us since
			return live, err
		}
	}
}

// whole reads a list of children until two readings in a row agree; with an error there may
// be more. The kernel reads child by child and counts them: if one that it has read is reaped
// meanwhile, it passes over another one, whose end nothing may tell of again. But then the
// reaped one is in this reading and not in the next.
func whole(list func() ([]int, error)) ([]int, error) {
	var all []int
	for range maxPasses {
		pids, err := list()
		agrees := all != nil && slices.Equal(pids, all)
		if all = append([]int{}, pids...); agrees || err != nil {
			return distinct(all), err
		}
	}
	return distinct(all), errors.New("children come and go too fast to be listed")
}

// reapOnce is one look at our children.
func reapOnce(list func() ([]int, error), wanted func(pid int) bool, kill bool, spared map[int]bool, note func(int, time.Duration)) (live []int, reaped bool, err error) {
	children, err := whole(list)
	for _, pid := range children {
		if !wanted(pid) {
			continue
		}
		if kill {
			KillChild(pid, spared)
		}
		var status syscall.WaitStatus
		var used syscall.Rusage
		told, err := syscall.Wait4(pid, &status, syscall.WNOHANG, &used)
		ended := told == pid && (status.Exited() || status.Signaled()) // one that made us its tracer may have stopped
		if ended && note != nil {
			note(pid, time.Duration(used.Utime.Nano()+used.Stime.Nano()))
		}
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
