package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks bounds how many links to nowhere are followed.
const maxLinks = 16

// Real is the absolute path without the symbolic links that lead through it, as
// far as it exists: below that there can be none. It is true when it is found
// and may not be a moment later.
func Real(path string) (string, error) { return realPath(path, maxLinks) }

func realPath(path string, links int) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if _, ok := errors.AsType[syscall.Errno](err); err != nil && !ok {
		return "", syscall.ELOOP // it has no other error but the system's
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	path = strings.TrimRight(path, string(filepath.Separator))
	dir, base := filepath.Split(path)
	if base == "" || dir == "" {
		return "", err
	}
	if base == "." {
		return realPath(dir, links)
	}
	if dir, err = realPath(dir, links); err != nil {
		return "", err
	}
	if base == ".." { // up from what is not there
		return "", fs.ErrNotExist
	}
	target, err := os.Readlink(filepath.Join(dir, base))
	switch {
	case err != nil:
		return filepath.Join(dir, base), nil
	case links == 0:
		return "", syscall.ELOOP
	case filepath.IsAbs(target):
		return realPath(target, links-1)
	default:
		return realPath(dir+string(filepath.Separator)+target, links-1)
	}
}
