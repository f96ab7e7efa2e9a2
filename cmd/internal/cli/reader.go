package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ExitNoReader is what a shell calls the end by SIGPIPE: whoever read stdout wants no
// more, as in "nexus-rpc events | head".
const ExitNoReader = 128 + int(syscall.SIGPIPE)

// errNoReader says that nobody reads stdout any more. It is the end of a verb, and no
// failure of which anybody has to be told.
var errNoReader = errors.New("nobody reads stdout any more")

// untilNoReader is a context that ends when nobody reads stdout any more, with errNoReader
// for its cause: a verb that prints seldom would not notice. The caller must call stop.
func untilNoReader(ctx context.Context, stdout io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	out, ok := stdout.(*os.File)
	if !ok {
		return ctx, func() { cancel(nil) }
	}
	awake, wake, err := os.Pipe()
	if err != nil { // then a write will tell
		return ctx, func() { cancel(nil) }
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		if awaitNoReader(out, awake) {
			cancel(errNoReader)
		}
	})
	return ctx, func() {
		cancel(nil)
		_ = wake.Close() // nothing was written to it
		watching.Wait()
		_ = awake.Close()
	}
}

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
