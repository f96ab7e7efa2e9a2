package toolenv

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

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	maxFiles    = 64      // files; the oldest go first
	maxFileSize = 8 << 20 // bytes of a result; the rest is lost
)

// spill is a directory for what is too long for a result.
type spill struct {
	dir string // "" keeps nothing

	mu   sync.Mutex // guards all below, and the removal of files
	last int        // number of the last file
}

func (s *spill) contains(path string) bool {
	return s.dir != "" && strings.HasPrefix(path, s.dir+string(filepath.Separator))
}

func (s *spill) Save(tool, text string) (path string, err error) {
	if s.dir == "" {
		return "", errors.New("nothing is kept")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := safefile.Mkdir(s.dir); err != nil {
		return "", err
	}
	s.last++
	path = filepath.Join(s.dir, fmt.Sprintf("%s-%d.txt", tool, s.last))
	if err := os.WriteFile(path, []byte(textcut.Head(text, maxFileSize)), 0o600); err != nil {
		os.Remove(path)
		return "", err
	}
	s.pruneLocked()
	return path, nil
}

// prune removes the oldest files, where a command has left its output, too.
func (s *spill) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked()
}

// pruneLocked is prune for a caller that holds mu.
func (s *spill) pruneLocked() {
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) <= maxFiles {
		return
	}
	age := func(e fs.DirEntry) time.Time {
		if info, err := e.Info(); err == nil {
			return info.ModTime()
		}
		return time.Time{} // it is gone
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:len(entries)-maxFiles] {
		os.Remove(filepath.Join(s.dir, e.Name()))
	}
}

func (s *spill) remove() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
