package workplace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	maxKept  = 64      // files; the oldest goes first
	maxSpill = 8 << 20 // bytes of one; the rest is lost
)

// scratch is a directory for what is too long for a result.
type scratch struct {
	dir string // "" keeps nothing

	mu   sync.Mutex // guards all below
	kept []string   // files, oldest first
	last int        // number of the last
}

// holds reports whether path lies in the directory.
func (s *scratch) holds(path string) bool {
	return s.dir != "" && strings.HasPrefix(path, s.dir+string(filepath.Separator))
}

// spill implements the Spill of [tool.Options].
func (s *scratch) spill(tool, text string) (path string, err error) {
	if s.dir == "" {
		return "", fmt.Errorf("nothing is kept")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", err
	}
	s.last++
	path = filepath.Join(s.dir, fmt.Sprintf("%s-%d.txt", tool, s.last))
	if err := os.WriteFile(path, []byte(text[:min(len(text), maxSpill)]), 0o600); err != nil {
		os.Remove(path)
		return "", err
	}
	if s.kept = append(s.kept, path); len(s.kept) > maxKept {
		os.Remove(s.kept[0])
		s.kept = s.kept[1:]
	}
	return path, nil
}

// remove gives the directory up.
func (s *scratch) remove() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
