package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLinked says that a symbolic link stands in a path that had none. It comes in a
// *fs.PathError, whose Path is that of the link.
var ErrLinked = errors.New("is a symbolic link")

// errReplaced says that something else stood at the path a moment later.
var errReplaced = errors.New("was replaced while it was opened")

// OpenRealRoot is OpenRoot for an absolute path that no symbolic link led through when it was
// checked. It follows no link, of which a program may have put one into the path since: the
// directory that it opens is the one that the path names without links. The error is what the
// system says, or ErrLinked.
func OpenRealRoot(dir string) (*os.Root, error) {
	there, err := openReal(dir)
	if err != nil {
		return nil, err
	}
	defer there.Close() // until then no other directory gets its number
	root, err := OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil {
		var want fs.FileInfo
		if want, err = there.Stat(); err == nil && !os.SameFile(opened, want) {
			err = &fs.PathError{Op: "open", Path: dir, Err: errReplaced}
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openReal opens the directory at an absolute path, and nothing but to look at it. It takes one
// name after the other from the directory before, so that no link is followed.
func openReal(dir string) (*os.File, error) {
	const separator = string(filepath.Separator)
	const flags = search | noFollow | unix.O_DIRECTORY | unix.O_CLOEXEC
	path := separator
	at, err := openAt(unix.AT_FDCWD, path, flags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean(dir), separator), separator) {
		if name == "" { // of the root itself
			break
		}
		path = filepath.Join(path, name)
		next, err := openAt(at, name, flags)
		if err != nil && isLink(at, name) {
			err = ErrLinked
		}
		_ = unix.Close(at)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		at = next
	}
	return os.NewFile(uintptr(at), dir), nil
}

func openAt(at int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// isLink says why a name was not opened: the error for a link differs from system to system.
func isLink(at int, name string) bool {
	var stat unix.Stat_t
	return unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK
}
