package writequeue

import (
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller tells whether a stream has room. The zero value never knows.
type Poller struct {
	regular bool // a regular file, or /dev/null: it takes all
	raw     syscall.RawConn
}

// Poll returns the Poller of w. It knows nothing of a writer that is neither a regular file
// nor a pipe, a socket or /dev/null, as of a terminal.
func Poll(w io.Writer) Poller {
	f, ok := w.(*os.File)
	if !ok {
		return Poller{}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return Poller{}
	case info.Mode().IsRegular(), isNull(info):
		return Poller{regular: true}
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		return Poller{}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return Poller{}
	}
	return Poller{raw: raw}
}

// isNull reports whether a file is /dev/null.
func isNull(file os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && file.Mode()&os.ModeCharDevice != 0 && os.SameFile(null, file)
}

// Ready reports whether n bytes could be written now without blocking, as far as nobody else
// writes: to a regular file any number, to a pipe or socket that has room as many as poll(2)
// vouches for.
func (p Poller) Ready(n int) (room bool) {
	vouched := 512 // PIPE_BUF as POSIX has it: that much fits where poll says that anything does
	if runtime.GOOS == "linux" {
		vouched = 4096
	}
	if p.regular || p.raw == nil || n > vouched {
		return p.regular
	}
	err := p.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		ready, err := unix.Poll(fds, 0)
		// A pipe without a reader has room: the write fails at once.
		room = err == nil && ready == 1
	})
	return err == nil && room
}
