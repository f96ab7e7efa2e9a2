package proc

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// selfGrace is how long what is left of a process may end by itself: the
	// wardens of nexus-child do, and tidy up.
	selfGrace = 25 * time.Millisecond
	// killPatience is how long we wait for what was killed. What takes longer
	// hangs in the kernel.
	killPatience = 2 * time.Second
)

// endAll returns when step finds nobody any more. After selfGrace it is asked to
// kill whom it finds. endAll returns those that are left in spite of that.
func endAll(step func(kill bool) (left []int)) (left []int) {
	patience := time.Now().Add(selfGrace)
	limit := patience.Add(killPatience)
	for {
		now := time.Now()
		killing := !now.Before(patience)
		left = step(killing)
		if len(left) == 0 || now.After(limit) {
			return left
		}
		until := patience
		if killing {
			until = now.Add(10 * time.Millisecond) // then look for others
		}
		awaitOne(left, until)
	}
}

// awaitOne returns when one of the processes has ended, or at the given time.
func awaitOne(pids []int, until time.Time) {
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
