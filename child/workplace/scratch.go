package workplace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/protocol/textcut"
)

const (
	maxKept  = 64      // files; the oldest go first
	maxSpill = 8 << 20 // bytes of a result; the rest is lost
)

// scratch is a directory for what is too long for a result.
type scratch struct {
	dir string // "" keeps nothing

	mu   sync.Mutex // guards all below, and the removal of files
	last int        // number of the last file
}

// holds reports whether path lies in the directory.
func (s *scratch) holds(path string) bool {
	return s.dir != "" && strings.HasPrefix(path, s.dir+string(filepath.Separator))
}

// spill implements the Spill of [tool.Options].
func (s *scratch) spill(tool, text string) (path string, err error) {
	if s.dir == "" {
		return "", errors.New("nothing is kept")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", err
	}
	s.last++
	path = filepath.Join(s.dir, fmt.Sprintf("%s-%d.txt", tool, s.last))
	if err := os.WriteFile(path, []byte(textcut.Head(text, maxSpill)), 0o600); err != nil {
		os.Remove(path)
		return "", err
	}
	s.prune()
	return path, nil
}

// tidy removes the oldest files, where a command has left its output, too.
func (s *scratch) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
}

// prune is tidy for a caller that holds mu.
func (s *scratch) prune() {
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) <= maxKept {
		return
	}
	age := func(e fs.DirEntry) time.Time {
		if info, err := e.Info(); err == nil {
			return info.ModTime()
		}
		return time.Time{} // it is gone
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:len(entries)-maxKept] {
		os.Remove(filepath.Join(s.dir, e.Name()))
	}
}

// remove gives the directory up.
func (s *scratch) remove() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
