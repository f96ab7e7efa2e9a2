package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"nexus.internal/child/snapshot"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// Space is what one call may touch. All its paths are absolute and lead through
// no symbolic link, as [Real] gives them.
type Space struct {
	// Cwd is where relative paths begin.
	Cwd string
	// AllowedPaths are the directories and files that can be opened, with all below
	// them; Cwd is one of them in any case.
	AllowedPaths []string
	// Checker says more of the paths within AllowedPaths; nil lets all pass.
	Checker Checker
	// Tool is the name of the one that is called.
	Tool string
	// Snapshots keeps what files were before they are changed; nil keeps nothing.
	Snapshots *snapshot.Store
}

// Checker says why a path may not be read, or written. asked is the path as the model
// wrote it, for the words.
type Checker interface {
	Check(path, asked string, write bool) error
}

// refusedError is what a Checker said: words that stand for themselves.
type refusedError struct{ error }

func (s Space) check(path, asked string, write bool) error {
	if s.Checker == nil {
		return nil
	}
	if err := s.Checker.Check(path, asked, write); err != nil {
		return refusedError{err}
	}
	return nil
}

// top is what to open for a path: the working directory if the path is in it,
// else the narrowest that is in reach; "" if none is.
func (s Space) top(path string) (top string) {
	if _, ok := safefile.Below(s.Cwd, path); ok {
		return s.Cwd
	}
	for _, dir := range s.AllowedPaths {
		if _, ok := safefile.Below(dir, path); ok && len(dir) > len(top) {
			top = dir
		}
	}
	return top
}

// place is where a path leads: a name in a directory that is open, until close.
type place struct {
	space Space
	asked string   // by the model
	path  string   // absolute; no link led through it when it was found
	root  *os.Root // a directory of the space that the path is in
	name  string   // in root
	write bool     // it may be written; then it may be read, too
	made  []string // directories in root that were not there, the first above the others
}

// base is the name in its directory.
func (p *place) base() string { return filepath.Base(p.name) }

// close gives up the directory, in which nothing waits to be written.
func (p *place) close() { _ = p.root.Close() }

// find finds out where a path leads. The kernel keeps what is done there within
// the root; where exactly a file lies is asked of the kernel once more when it
// is open, as links may have been changed meanwhile.
func (s Space) find(attempt, asked string, write bool) (*place, error) {
	if asked == "" {
		return nil, &strict.Error{Path: "path", Problem: "is empty"}
	}
	path, err := safefile.ExpandTilde(asked)
	if err != nil {
		return nil, fmt.Errorf("%s %w", attempt, err)
	}
	if !filepath.IsAbs(path) {
		path = s.Cwd + string(filepath.Separator) + path
	}
	written := filepath.Clean(path)
	at, err := Follow(path)
	if err != nil && s.top(written) == "" { // what is there is none of its business
		return nil, outside(asked)
	}
	path = at.Path
	top := s.top(path)
	if err := s.check(path, asked, write); err != nil {
		return nil, err
	}
	if top == "" {
		return nil, outside(asked)
	}
	if err != nil {
		return nil, explain(attempt, asked, err)
	}
	if _, err := os.Lstat(s.Cwd); top == s.Cwd && errors.Is(err, fs.ErrNotExist) {
		// It may come back: what is made in its place would hide that it has gone.
		return nil, fmt.Errorf("%s %s: the working directory is gone: %s", attempt, asked, s.Cwd)
	}
	top = nearestDir(top) // it may be a file, or nothing yet
	root, err := safefile.OpenRealRoot(top)
	if err != nil {
		return nil, explain(attempt, asked, err)
	}
	name, _ := safefile.Below(top, path)
	return &place{space: s, asked: asked, path: path, root: root, name: name, write: write}, nil
}

// nearestDir is the directory, or the first above it that is one.
func nearestDir(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// shown is how answers name a path: relative to the working directory if it
// lies there.
func (s Space) shown(path string) string {
	if relative, ok := safefile.Below(s.Cwd, path); ok {
		return filepath.ToSlash(relative)
	}
	return path
}

// open opens what is at a name in the root for reading, and checks where that
// truly is. Opening a named pipe does not wait for its other end.
func (p *place) open(name string) (f *os.File, path string, err error) {
	f, err = p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", err
	}
	path, err = location(f)
	if err == nil {
		err = p.permit(path, p.write)
	}
	if err != nil {
		f.Close()
		return nil, "", err
	}
	return f, path, nil
}

// permit checks the true path of something that is open. A file that has been
// deleted since is told apart by the kernel with a mark.
func (p *place) permit(path string, write bool) error {
	for _, path := range []string{path, strings.TrimSuffix(path, " (deleted)")} {
		if err := p.space.check(path, p.asked, write); err != nil {
			return err
		}
	}
	return nil
}

// regular opens a regular file for reading. Its errors are for the model.
func (p *place) regular(attempt string) (*os.File, fs.FileInfo, error) {
	f, _, err := p.open(p.name)
	if err != nil {
		return nil, nil, explain(attempt, p.asked, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = explain(attempt, p.asked, err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s %s: it is %s", attempt, p.asked, kind(info.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Open opens a regular file for reading, for callers that are no tools. Its errors
// are words for a person or a model.
func Open(s Space, path string) (*os.File, fs.FileInfo, error) {
	p, err := s.find("read", path, false)
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	return p.regular("read")
}

// parent opens the directory that the place is in, and makes it if it is not
// there. What is done in it by names alone cannot leave it.
func (p *place) parent(ctx context.Context) (*os.Root, error) {
	return p.directory(ctx, filepath.Dir(p.name))
}

func (p *place) directory(ctx context.Context, name string) (dir *os.Root, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err = safefile.OpenRootIn(p.root, name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || name == "." {
		return dir, err
	}
	above, err := p.directory(ctx, filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = above.Close() }() // nothing waits to be written
	base := filepath.Base(name)
	if err := p.permitIn(above, base); err != nil {
		return nil, err
	}
	switch err := above.Mkdir(base, 0o777); {
	case err == nil:
		p.made = append(p.made, name)
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	return safefile.OpenRootIn(above, base)
}

// unmake removes the directories that were made, as far as they are empty.
func (p *place) unmake() {
	for _, name := range slices.Backward(p.made) {
		made := &place{space: p.space, asked: p.asked, root: p.root, name: name}
		if dir, info, err := made.existing(); err == nil {
			if info.IsDir() {
				_ = dir.Remove(made.base()) // somebody may have put something into it
			}
			_ = dir.Close() // nothing waits to be written
		}
	}
	p.made = nil
}

// permitIn checks that a name in an open directory may be written.
func (p *place) permitIn(dir *os.Root, base string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	path, err := location(f)
	if err != nil {
		return err
	}
	return p.permit(filepath.Join(path, base), true)
}

// Real is the absolute path without the symbolic links that lead through it, as
// far as it exists: below that there can be none. It is true when it is found
// and may not be a moment later. The error says that it cannot be followed.
func Real(path string) (string, error) {
	at, err := Follow(path)
	if err != nil {
		return "", err
	}
	return at.Path, nil
}

// Resolver is Real for many paths at one moment: it looks once at each directory that has
// several of them, and at the way to it. The zero value is ready.
type Resolver struct{ dirs map[string]string }

// Real is Real. It may tell what was so when the Resolver was first asked.
func (r *Resolver) Real(path string) (string, error) {
	dir, base := filepath.Split(path)
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || base == "" {
		return Real(path)
	}
	real, known := r.dirs[dir]
	if !known {
		var err error
		if real, err = Real(dir); err != nil {
			return "", err
		}
		if r.dirs == nil {
			r.dirs = map[string]string{}
		}
		r.dirs[dir] = real
	}
	path = filepath.Join(real, base)
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 || errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return Real(path)
}

// errOutside says that a path leads to where it may not.
var errOutside = errors.New("is outside the working directory")

func outside(path string) error { return fmt.Errorf("%s %w", path, errOutside) }

// explain puts an error of the file system into words for a model, which name
// no path but the one that the model wrote.
func explain(attempt, asked string, err error) error {
	if _, ok := errors.AsType[refusedError](err); ok {
		return err
	}
	switch cause := bare(err); {
	case escapes(cause), errors.Is(cause, safefile.ErrLinked):
		return outside(asked)
	case errors.Is(cause, fs.ErrNotExist):
		return fmt.Errorf("%s %s: there is no such file or directory", attempt, asked)
	default:
		return fmt.Errorf("%s %s: %w", attempt, asked, cause)
	}
}

// errEscapes is what an os.Root says of a path that leads out of it.
var errEscapes = sync.OnceValue(func() error {
	root, err := safefile.OpenRoot(string(filepath.Separator))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written
	_, err = root.Lstat("..")
	return bare(err)
})

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
