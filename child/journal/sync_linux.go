package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData puts the file's content on the disk, not its times.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
