//go:build unix

package outcomes

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the file for this process, without waiting.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
