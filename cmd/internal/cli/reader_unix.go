//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitNoReader returns true once nobody can read from out any more, a pipe or a
// socket; false when wake ends, and at once where there is no telling.
func awaitNoReader(out, wake *os.File) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(out.Fd())}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || fds[1].Revents != 0 || fds[0].Revents&unix.POLLNVAL != 0:
			return false
		case fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			return true
		}
	}
}
