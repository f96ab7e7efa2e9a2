package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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
	if _, ok := below(s.Cwd, path); ok {
		return s.Cwd
	}
	for _, dir := range s.AllowedPaths {
		if _, ok := below(dir, path); ok && len(dir) > len(top) {
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
}

// close gives up the directory, in which nothing waits to be written.
func (p *place) close() { _ = p.root.Close() }

// find finds out where a path leads. The kernel keeps what is done there within
// the root; where exactly a file lies is asked of the kernel once more when it
// is open, as links may have been changed meanwhile.
func (s Space) find(attempt, asked string, write bool) (*place, error) {
	if asked == "" {
		return nil, &strict.Error{Path: "path", Problem: "is empty"}
	}
	path := asked
	if !filepath.IsAbs(path) {
		path = s.Cwd + string(filepath.Separator) + path
	}
	written := filepath.Clean(path)
	path, err := Real(path)
	if err != nil {
		if s.top(written) == "" { // what is there is none of its business
			return nil, outside(asked)
		}
		return nil, explain(attempt, asked, err)
	}
	top := s.top(path)
	if err := s.check(path, asked, write); err != nil {
		return nil, err
	}
	if top == "" {
		return nil, outside(asked)
	}
	top = nearestDir(top) // it may be a file, or nothing yet
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, explain(attempt, asked, err)
	}
	name, _ := below(top, path)
	return &place{space: s, asked: asked, path: path, root: root, name: name}, nil
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
	if relative, ok := below(s.Cwd, path); ok {
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
		err = p.permit(path, false)
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

// Open opens a regular file for reading, for whoever is not a tool. Its errors
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
	dir, err = p.root.OpenRoot(name)
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
	if err := above.Mkdir(base, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return above.OpenRoot(base)
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

// below makes path relative to dir; false if it does not lie there. Both are
// absolute and clean.
func below(dir, path string) (string, bool) {
	relative, err := filepath.Rel(dir, path)
	return relative, err == nil && filepath.IsLocal(relative)
}
