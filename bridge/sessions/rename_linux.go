package sessions

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// rename moves a file to where nothing stands; fs.ErrExist if something does.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not with this file system
		return renameUnlessThere(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
