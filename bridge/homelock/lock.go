package homelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// The lock is two: flock(2), which one server gets and others wait for, and a record
// lock of fcntl(2), which can be asked for without being taken.

// inodeOf is the number of the file in its file system.
func inodeOf(file *os.File) (uint64, error) {
	var about unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &about)
	return about.Ino, err
}

func wait(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) { //nolint:forbidigo // shared, which safefile does not do
			return err
		}
	}
}

func record(file *os.File) error {
	return unix.FcntlFlock(file.Fd(), setLock, &unix.Flock_t{Type: unix.F_WRLCK})
}

func recorded(file *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(file.Fd(), getLock, &lock)
	return err == nil && lock.Type != unix.F_UNLCK, err
}
