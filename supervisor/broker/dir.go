package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// dirPrefix begins the name of every server's directory of sockets.
const dirPrefix = "nexus-model-"

// maxSocketPath is what every system takes as the path of a socket, in bytes.
const maxSocketPath = 103

// nameLen is the length of a socket's name, in bytes.
const nameLen = 12

// socketDir is a directory for its owner alone, locked as long as its server
// lives.
type socketDir struct {
	path string
	file *os.File // locked
}

// newSocketDir makes a directory in parent, and removes those there whose
// servers are dead.
func newSocketDir(parent string) (*socketDir, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, fmt.Errorf("make the directory of sockets: %w", err)
	}
	for {
		d, err := makeLocked(parent)
		if err != nil {
			return nil, fmt.Errorf("make the directory of sockets: %w", err)
		}
		if d == nil {
			continue // somebody swept it before we had locked it
		}
		if len(d.path)+1+nameLen > maxSocketPath {
			return nil, errors.Join(fmt.Errorf("the path of sockets in %s is too long: set XDG_RUNTIME_DIR or TMPDIR to a shorter one", parent), d.remove())
		}
		sweep(parent, d.path)
		return d, nil
	}
}

func makeLocked(parent string) (*socketDir, error) {
	path, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	d := &socketDir{path: path, file: file}
	if !lock(file) {
		return nil, file.Close()
	}
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(locked, there) {
		return nil, file.Close()
	}
	return d, nil
}

// remove removes the directory and gives up the lock.
func (d *socketDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.file.Close())
}

// sweep removes the directories of dead servers of ours. What cannot be removed
// stays: it is in nobody's way.
func sweep(parent, own string) {
	entries, _ := os.ReadDir(parent) // those that it could read
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if !strings.HasPrefix(entry.Name(), dirPrefix) || path == own {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !owned(info) {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if opened, err := file.Stat(); err == nil && os.SameFile(info, opened) && lock(file) {
			os.RemoveAll(path)
		}
		file.Close()
	}
}
