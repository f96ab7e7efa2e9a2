//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock locks the file for this process alone; errLocked if another has it.
func takeLock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// awaitLock waits until nobody holds the lock.
func awaitLock(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
