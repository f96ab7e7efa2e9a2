package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// errOutside says that a path leads to where it may not.
var errOutside = errors.New("is outside the working directory")

// outside is the error for a path that a model wrote.
func outside(path string) error { return fmt.Errorf("%s %w", path, errOutside) }

// explain puts an error of the file system into words for a model, which name
// no path but the one that the model wrote.
func explain(attempt, asked string, err error) error {
	if _, ok := errors.AsType[refusedError](err); ok {
		return err
	}
	switch cause := bare(err); {
	case escapes(cause):
		return outside(asked)
	case errors.Is(cause, fs.ErrNotExist):
		return fmt.Errorf("%s %s: there is no such file or directory", attempt, asked)
	default:
		return fmt.Errorf("%s %s: %w", attempt, asked, cause)
	}
}

// errEscapes is what an os.Root says of a path that leads out of it.
var errEscapes = sync.OnceValue(func() error {
	root, err := os.OpenRoot(string(filepath.Separator))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written
	_, err = root.Lstat("..")
	return bare(err)
})

// escapes reports whether a path led out of its root.
func escapes(cause error) bool { return errors.Is(cause, errEscapes()) }

// bare is the error without the paths that the os package wraps it in.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
