//go:build unix

package sessions

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/safefile"
)

// lock takes the lock that a child has on its session; ErrInUse if one has it.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// lockFile waits for a file's lock, which ends when the file is closed.
func lockFile(path string) (*os.File, error) {
	f, err := safefile.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, err
		}
	}
}

// letGo gives the lock back and closes the file. The lock is given back by itself:
// a process that is just being started has the descriptor too, until it is its own
// program, and would keep it.
func letGo(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does it, then
	_ = f.Close()
}
