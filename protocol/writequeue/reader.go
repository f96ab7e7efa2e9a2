package writequeue

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// WatchReader calls gone, once, when out has lost its reader, without waiting for the next
// write to find out. It works on pipes, sockets and terminals; of anything else it knows
// nothing, and does nothing. stop ends the watch and joins its goroutine; out must be open
// until then.
func WatchReader(out *os.File, gone func()) (stop func()) {
	raw, err := out.SyscallConn()
	if err != nil {
		return func() {}
	}
	awake, wake, err := os.Pipe()
	if err != nil { // then a write will tell
		return func() {}
	}
	fd := -1
	_ = raw.Control(func(n uintptr) { fd = int(n) }) // Fd would make writes to it block
	wakeFD := int(awake.Fd())
	var watching sync.WaitGroup
	watching.Go(func() {
		fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wakeFD), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case err == unix.EINTR || err == unix.EAGAIN: // to be tried again
			case err != nil || fds[1].Revents != 0 || fds[0].Revents&unix.POLLNVAL != 0:
				return
			case fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
				gone()
				return
			}
		}
	})
	return func() {
		_ = wake.Close() // nothing was written to it
		watching.Wait()
		_ = awake.Close()
	}
}
