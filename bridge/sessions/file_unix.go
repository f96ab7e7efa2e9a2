//go:build unix

package sessions

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/plainfile"
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
	f, err := plainfile.Open(path, os.O_RDWR|os.O_CREATE)
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
