//go:build unix

package safefile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openFlags follow no link and wait for no other end of a pipe.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// syncDir returns once the names in a directory are on the disk.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
