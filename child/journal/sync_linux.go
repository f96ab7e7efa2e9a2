package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncData puts a file's content on the disk, not its times: fdatasync(2).
func SyncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
