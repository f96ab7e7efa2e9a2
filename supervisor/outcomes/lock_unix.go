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

// release gives the lock back and closes the file. The lock is given back by itself:
// a process that is just being started has the descriptor too, until it is its own
// program, and would keep it.
func release(f *os.File) error {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does it, then
	return f.Close()
}
