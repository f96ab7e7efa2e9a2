//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock locks the file for this process alone.
func takeLock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// awaitLock waits until nobody holds the lock.
func awaitLock(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
