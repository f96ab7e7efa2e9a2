package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ErrOutside says that a path leads out of the directory.
var ErrOutside = errors.New("is outside the working directory")

// LinkError says that a path leads through a symbolic link whose target is
// absolute. An os.Root follows none such, though it points into the directory.
type LinkError struct{ Path string } // of the link, relative to the directory

func (e *LinkError) Error() string {
	return e.Path + " is a symbolic link with an absolute target, which is not followed"
}

// Reason is the err of an access to name, relative to root, in words for a
// model or a person: ErrOutside, a *LinkError, or one that repeats no path. It
// looks at the links that name leads through.
func Reason(root *os.Root, name string, err error) error {
	cause := bare(err)
	switch {
	case escapes(cause):
		if link := absoluteLink(root, name, 8); link != "" {
			return &LinkError{Path: link}
		}
		return ErrOutside
	case errors.Is(cause, fs.ErrNotExist):
		return errors.New("there is no such file or directory")
	default:
		return cause
	}
}

// errEscapes is what an os.Root says of a path that leads out of it.
var errEscapes = sync.OnceValue(func() error {
	root, err := os.OpenRoot(string(filepath.Separator))
	if err != nil {
		return err
	}
	defer root.Close()
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

// absoluteLink finds the link on the way to name whose target is an absolute
// path inside the directory; "" if there is none.
func absoluteLink(root *os.Root, name string, links int) string {
	at := ""
	for part := range strings.SplitSeq(filepath.Clean(name), string(filepath.Separator)) {
		at = filepath.Join(at, part)
		target, err := root.Readlink(at)
		switch {
		case err != nil:
		case !filepath.IsAbs(target) && links > 0:
			if link := absoluteLink(root, filepath.Join(filepath.Dir(at), target), links-1); link != "" {
				return link
			}
		case filepath.IsAbs(target):
			if _, ok := within(names(root.Name()), target); ok {
				return at
			}
		}
	}
	return ""
}

// names are the absolute paths of dir: its own, and the one that no link leads
// through.
func names(dir string) []string {
	all := []string{dir}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		all = append(all, real)
	}
	return all
}

// within makes an absolute path relative to the directory of these names; false
// if it is outside.
func within(names []string, path string) (string, bool) {
	for _, name := range names {
		if relative, err := filepath.Rel(name, path); err == nil && filepath.IsLocal(relative) {
			return relative, true
		}
	}
	return "", false
}

// outside is the error for a path that a model wrote.
func outside(path string) error { return fmt.Errorf("%s %w", path, ErrOutside) }
