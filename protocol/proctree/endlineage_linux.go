package proctree

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// EndGrace is how long processes that are to end may do so by themselves: the
// reapers of nexus-child do, and tidy up.
const EndGrace = 25 * time.Millisecond

// EndLineage ends all processes that bear a wanted number, except this one and
// its process group. It calls first before it kills, as often as it does. It
// returns the processes that it could not end; with an error there may be more.
func EndLineage(wanted func(number uint64) bool, first func()) (left []int, err error) {
	return EndAll(EndGrace, func(kill bool) ([]int, error) {
		pids, groups, err := lineage(wanted)
		switch {
		case !kill:
			renice(pids, groups)
		case len(pids) > 0:
			first()
			killAll(pids, groups, wanted)
		}
		return pids, err
	})
}

// OfLineage lists the processes that live with a wanted number, except this one.
// With an error there may be more.
func OfLineage(wanted func(number uint64) bool) ([]int, error) {
	pids, _, err := lineage(wanted)
	return pids, err
}

// renice lets those that fork have the processors last: a storm of them would keep
// us, who may not be root, from listing them. A process that leads its group, as
// reapers do, goes on as it was.
func renice(pids []int, groups map[int]bool) {
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil && group != pid && groups[group] {
			_ = unix.Setpriority(unix.PRIO_PGRP, group, 19) // or it has gone
			delete(groups, group)
		}
	}
}

// maxLooks is how often nobody is looked for again while others end: one that
// was listed may have started another before it ended, which was not.
const maxLooks = 20

// lineage lists the processes that live with a wanted number, except this one,
// and their groups that nobody else is in.
func lineage(wanted func(uint64) bool) (pids []int, groups map[int]bool, err error) {
	for range maxLooks {
		var ended bool
		pids, groups, ended, err = look(wanted)
		if len(pids) > 0 || !ended {
			break
		}
	}
	return pids, groups, err
}

// look is one look at all processes. ended says that some of those that were
// wanted, or might have been, have ended meanwhile.
func look(wanted func(uint64) bool) (pids []int, groups map[int]bool, ended bool, err error) {
	groups = map[int]bool{}
	others := map[int][]int{} // by group
	all, err := All()
	for _, pid := range all {
		group, err := unix.Getpgid(pid) // first: it may be gone when we know that it is wanted
		switch {
		case pid == os.Getpid():
		case !wanted(LineageOf(pid)):
			if err == nil {
				others[group] = append(others[group], pid)
			}
			ended = ended || err != nil || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		case hasEnded(pid):
			ended = true
		default:
			pids = append(pids, pid)
			if err == nil && group > 1 && group != unix.Getpgrp() {
				groups[group] = true
			}
		}
	}
	for group := range groups {
		if err != nil || slices.ContainsFunc(others[group], func(pid int) bool { return !hasEnded(pid) }) {
			delete(groups, group)
		}
	}
	return pids, groups, ended, err
}

// hasEnded reports whether a process has ended, though perhaps nobody took note. A
// storm of forks leaves thousands of such to a slow init, so it must be quick. A
// process that cannot be read has not ended as far as we know.
func hasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		s, err := ReadStat(pid)
		return s.Ended() || Gone(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// killAll kills processes that still bear a number that is wanted: an id may
// pass to another process at any time. Of a group that has nobody else in it, all
// are killed at once: who forks does not get away by dying first.
func killAll(pids []int, groups map[int]bool, wanted func(uint64) bool) {
	for group := range groups {
		_ = unix.Kill(-group, unix.SIGKILL) // or nobody is left in it
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			if errors.Is(err, unix.ENOSYS) && wanted(LineageOf(pid)) { // Linux before 5.3
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			continue
		}
		if wanted(LineageOf(pid)) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it is gone, or another user's
		}
		unix.Close(fd)
	}
}
