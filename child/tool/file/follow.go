package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks bounds how many symbolic links are followed on the way to a file, as the kernel does.
const maxLinks = 40

// Way is where a path leads.
type Way struct {
	// Path is absolute, and no link leads through it. It is the path as a whole, or as far as it can
	// be followed and the rest as written, up to the next "..".
	Path string
	// Left are the directories that a link led to, and that ".." left again: who is told where the way
	// ends learns that they are there.
	Left []string
}

// Follow finds out where an absolute path leads. What is not there leads below the last directory that
// is; an error says why the path cannot be followed otherwise. The Way is there beside an error, too.
func Follow(path string) (Way, error) {
	const root = string(filepath.Separator)
	w, missing, links := Way{Path: root}, false, 0
	for rest := strings.Split(path, root); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(w.Path, name)
		switch {
		case name == "" || name == ".":
			continue
		case name == ".." && missing:
			return w, fs.ErrNotExist // up from what is not there
		case name == "..":
			if links > 0 {
				w.Left = append(w.Left, w.Path)
			}
			w.Path = next
			continue
		case missing:
			w.Path = next
			continue
		}
		info, err := os.Lstat(next)
		var target string
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if links++; links > maxLinks {
				err = syscall.ELOOP
			} else {
				target, err = os.Readlink(next)
			}
		} else if err == nil && !info.IsDir() && len(rest) > 0 {
			err = syscall.ENOTDIR
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = true
		case err != nil:
			w.Path = next
			for len(rest) > 0 && rest[0] != ".." {
				w.Path, rest = filepath.Join(w.Path, rest[0]), rest[1:]
			}
			return w, bare(err)
		case target != "":
			if filepath.IsAbs(target) {
				w.Path = root
			}
			rest = append(strings.Split(target, root), rest...)
			continue
		}
		w.Path = next
	}
	return w, nil
}
