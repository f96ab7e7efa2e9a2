package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrHeld says that another server holds a directory.
var ErrHeld = errors.New("another nexus server uses this home with the same port")

// Hold is a server's claim on its directory.
type Hold struct {
	dir  string
	file *os.File // locked
}

// HoldServer claims the directory of a server (sessions.RunDir), which tells
// others of the home that the server's process lives. It makes the directory,
// and removes what a server that was killed left there. It fails with ErrHeld if
// a server that lives has it. The caller must call Release.
func HoldServer(dir string) (*Hold, error) {
	for {
		h, err := claim(dir)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", dir, err)
		}
		if h == nil {
			continue // a server ended just now, and removed what we had opened
		}
		if err := h.clear(); err != nil {
			return nil, errors.Join(fmt.Errorf("claim %s: %w", dir, err), h.file.Close())
		}
		return h, nil
	}
}

// claim locks the directory; nil if it is not the one at its path any more.
func claim(dir string) (*Hold, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := takeLock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if there, err := os.Stat(dir); err != nil || !os.SameFile(locked, there) {
		return nil, file.Close()
	}
	return &Hold{dir: dir, file: file}, nil
}

func (h *Hold) clear() error {
	entries, err := os.ReadDir(h.dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(h.dir, entry.Name())))
	}
	return err
}

// Release removes the directory with what is in it and gives up the claim.
func (h *Hold) Release() error {
	return errors.Join(os.RemoveAll(h.dir), h.file.Close())
}
