package child

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchReader calls gone, once, when stdout has lost its reader, without
// waiting for the next write to find out: the parent is dead then. It works on
// pipes and sockets; of anything else it knows nothing and does nothing. stop
// ends the watch and joins its goroutine.
func watchReader(stdout io.Writer, gone func()) (stop func()) {
	f, ok := stdout.(*os.File)
	if !ok {
		return func() {}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return func() {}
	}
	wake, waker, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	fd := -1
	_ = raw.Control(func(n uintptr) { fd = int(n) }) // valid until Serve returns
	wakeFD := int(wake.Fd())
	var watch sync.WaitGroup
	watch.Go(func() {
		fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wakeFD), Events: unix.POLLIN}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case err == unix.EINTR || err == unix.EAGAIN: // to be tried again
			case err != nil || fds[1].Revents != 0:
				return
			case fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
				gone()
				return
			}
		}
	})
	return func() {
		waker.Close()
		watch.Wait()
		wake.Close()
	}
}
