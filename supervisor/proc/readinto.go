package proc

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/frame"
)

// attempt is one call of readInto.
type attempt struct {
	room frame.Room
	n    int
	err  error
}

// try reads once; false if there is nothing yet.
func (a *attempt) try(fd uintptr) bool {
	for {
		a.n, a.err = unix.Read(int(fd), a.room.Take())
		switch {
		case errors.Is(a.err, unix.EINTR):
			continue
		case errors.Is(a.err, unix.EAGAIN):
			a.room.Give()
			return false
		case a.n < 0:
			a.n = 0
		}
		return true
	}
}

// readInto is f.Read into a room that is taken only when there is something to read. f is the
// reading end of a pipe.
func readInto(f *os.File, room frame.Room) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	a := attempt{room: room}
	err = conn.Read(a.try)
	switch {
	case err != nil: // closed, or too late
		return 0, err
	case a.err == nil && a.n == 0:
		return 0, io.EOF
	}
	return a.n, a.err
}
