package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Dir is a directory of this process.
type Dir struct {
	path     string
	file     *os.File // locked
	stop     context.CancelFunc
	sweeping sync.WaitGroup
}

// removePatience is how long the end of a process waits for the removal of its directory.
const removePatience = 2 * time.Second

// Mkdir makes a directory (mode 0700); it is no error if it is there. Unlike os.MkdirAll
// it makes none above it, so that nothing is put where a home was that is there no more.
func Mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// MakeDir makes a directory (mode 0700) in parent, which it makes, by Mkdir, if need be. The
// directories of dead processes there are removed meanwhile; Remove ends that.
func MakeDir(parent string) (*Dir, error) {
	d, err := newDir(parent)
	if err != nil {
		return nil, fmt.Errorf("make a directory in %s: %w", parent, err)
	}
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	d.sweeping.Go(func() { _ = SweepDirs(ctx, filepath.Dir(d.path)) }) // what stays is in nobody's way
	return d, nil
}

func newDir(parent string) (*Dir, error) {
	if err := Mkdir(parent); err != nil {
		return nil, err
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return nil, err
	}
	for {
		// It is nil if another process swept it before it was locked.
		if d, err := makeLocked(parent); d != nil || err != nil {
			return d, err
		}
	}
}

func makeLocked(parent string) (*Dir, error) {
	path, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, err
	}
	file, err := OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	there := false
	if err = Lock(file); err == nil {
		there, err = At(path, file)
	}
	switch {
	case err == nil && there:
		return &Dir{path: path, file: file}, nil
	case err == nil, errors.Is(err, ErrLocked), errors.Is(err, fs.ErrNotExist):
		return nil, file.Close()
	default:
		return nil, errors.Join(err, os.Remove(path), file.Close())
	}
}

// Path is absolute and without symbolic links.
func (d *Dir) Path() string { return d.path }

// Remove removes the directory with all that is in it and gives up the lock. It takes 2 s
// at most: the next process removes the rest.
func (d *Dir) Remove() error {
	d.stop()
	d.sweeping.Wait()
	return errors.Join(RemoveBriefly(d.path), d.file.Close())
}

// SweepDirs removes the directories in parent whose processes are dead, until ctx ends. A
// directory that stays is named by the error.
func SweepDirs(ctx context.Context, parent string) error {
	entries, _ := os.ReadDir(parent) // those that it could read
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !Ours(info) {
			continue
		}
		file, err := OpenDir(path)
		if err != nil {
			continue
		}
		if opened, err := file.Stat(); err == nil && os.SameFile(info, opened) && Lock(file) == nil {
			errs = append(errs, RemoveAll(ctx, path))
		}
		file.Close()
	}
	return errors.Join(errs...)
}
