//go:build unix

package sessions

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openFile opens the file itself for reading: a link is not followed, and a pipe
// is not waited for.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

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
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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
