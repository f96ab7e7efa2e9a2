package safefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Bounds are what a program may not read. They are safe for concurrent use.
type Bounds interface {
	// OutOfBounds reports whether a path, absolute and without links, is not the program's to read.
	OutOfBounds(path string) bool
}

var (
	// ErrOutOfBounds says that a link leads to what is out of bounds.
	ErrOutOfBounds = errors.New("leads to what is out of bounds for this agent")
	errExchanged   = errors.New("was exchanged while it was opened")
)

// OpenBounded is OpenIn, but refuses a link to what is out of bounds, by ErrOutOfBounds: a program that may not read a file can make a link to it. What
// stands at the name itself is what the owner put there. No link leads through the path of root. Without bounds, nil, it is OpenIn.
func OpenBounded(root *os.Root, name string, bounds Bounds) (*os.File, error) {
	f, err := OpenIn(root, name)
	if err != nil || bounds == nil {
		return f, err
	}
	path := filepath.Join(root.Name(), name)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		err = isAt(f, real)
	}
	if err == nil && real != path && bounds.OutOfBounds(real) {
		err = ErrOutOfBounds
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isAt says that an open file is not the one at a path without links: something was exchanged meanwhile.
func isAt(f *os.File, path string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if err == nil && !os.SameFile(opened, there) {
		err = errExchanged
	}
	return err
}
