package writequeue

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Poll returns a function that reports whether n bytes could be written to w
// now without blocking, as far as nobody else writes to it: to a regular file
// any number, to a pipe or socket that has room as many as poll(2) vouches for.
// It is nil where that cannot be known, as with a terminal.
func Poll(w io.Writer) func(n int) bool {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil
	case info.Mode().IsRegular():
		return func(int) bool { return true }
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	vouched := 512 // PIPE_BUF as POSIX has it: that much fits where poll says that anything does
	if runtime.GOOS == "linux" {
		vouched = 4096
	}
	return func(n int) (room bool) {
		if n > vouched {
			return false
		}
		err := raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			ready, err := unix.Poll(fds, 0)
			// A pipe without a reader has room: the write fails at once.
			room = err == nil && ready == 1
		})
		return err == nil && room
	}
}
