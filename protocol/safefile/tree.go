package safefile

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// RemoveAll removes what is at path with all that is in it, directories without
// permissions included. A program can make a tree deeper than a path or the number of
// descriptors can be, so RemoveAll moves each directory up to the top before it empties
// it: any depth takes six descriptors. It follows no link out of the tree. What cannot be
// removed, and what is there when ctx ends, stays, and the error names path. Nothing at
// path is no error.
func RemoveAll(ctx context.Context, path string) error {
	if err := removeAll(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func removeAll(ctx context.Context, path string) error {
	parent, err := OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	name := filepath.Base(path)
	info, err := parent.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return parent.Remove(name)
	}
	_ = parent.Chmod(name, 0o700) // opening says what is wrong
	root, err := OpenRootIn(parent, name)
	if err != nil {
		return err
	}
	t := &tree{ctx: ctx, root: root, prefix: rand.Text()}
	if err := errors.Join(t.all(), root.Close()); err != nil {
		return err
	}
	return parent.Remove(name)
}

// tree is one that is being removed.
type tree struct {
	ctx     context.Context // of the one call that removes it
	root    *os.Root
	prefix  string // of the names of moved directories, which no program foresees
	moved   int
	pending []string // the newest of the moved ones, at most maxPending
}

const maxPending = 1024 // the next pass over the root finds the others

// all removes what is in the root. The error is that of the first name that stays.
func (t *tree) all() error {
	for {
		removed, err := t.pass(".")
		if removed == 0 || t.ctx.Err() != nil {
			return err
		}
	}
}

// pass reads dir once, the root (".") or a directory in it, and counts the names that
// are gone from it.
func (t *tree) pass(dir string) (removed int, err error) {
	file, err := t.open(dir)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for {
		entries, failed := file.ReadDir(256)
		for _, entry := range entries {
			if err := t.ctx.Err(); err != nil {
				return removed, err
			}
			if stays := t.remove(dir, entry); stays == nil {
				removed++
			} else if err == nil {
				err = stays
			}
		}
		switch {
		case errors.Is(failed, io.EOF):
			return removed, err
		case failed != nil:
			return removed, failed
		}
	}
}

// open opens a directory, which its owner may read and change then.
func (t *tree) open(dir string) (*os.File, error) {
	file, err := t.root.Open(dir + itself)
	if err != nil {
		_ = t.root.Chmod(dir, 0o700) // the second try says what is wrong
		if file, err = t.root.Open(dir + itself); err != nil {
			return nil, err
		}
	}
	if info, err := file.Stat(); err == nil && info.Mode().Perm() != 0o700 {
		_ = file.Chmod(0o700) // what follows says what is wrong
	}
	return file, nil
}

// remove removes an entry from dir.
func (t *tree) remove(dir string, entry fs.DirEntry) error {
	path := filepath.Join(dir, entry.Name())
	switch {
	case !entry.IsDir():
		return t.root.Remove(path)
	case dir != ".":
		return t.raise(path)
	}
	err := t.directory(path)
	for n := len(t.pending); n > 0; n = len(t.pending) {
		name := t.pending[n-1]
		t.pending = t.pending[:n-1]
		_ = t.directory(name) // if it stays, the next pass over the root says why
	}
	return err
}

// directory removes a directory in the root.
func (t *tree) directory(name string) error {
	for {
		removed, err := t.pass(name)
		gone := t.root.Remove(name)
		switch {
		case gone == nil:
			return nil
		case removed == 0 || t.ctx.Err() != nil:
			return cmp.Or(err, gone)
		}
	}
}

// raise moves a directory into the root.
func (t *tree) raise(path string) error {
	t.moved++
	name := t.prefix + strconv.Itoa(t.moved)
	err := t.root.Rename(path, name)
	if err != nil {
		_ = t.root.Chmod(path, 0o700) // the second try says what is wrong
		err = t.root.Rename(path, name)
	}
	if err != nil { // a full disk may have no room for one more name in the root
		return t.root.RemoveAll(path)
	}
	if len(t.pending) < maxPending {
		t.pending = append(t.pending, name)
	}
	return nil
}
