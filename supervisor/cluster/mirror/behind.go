package mirror

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Behind reports whether the files that are here are older than those that were shipped before Take: their log ends earlier. That is so where a disk, or a part of it,
// was put back to an earlier state, or a power cut took what was not synced yet. Nothing is known to be older than what earlier versions have shipped.
func (m *Mirror) Behind() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log == (extent{}) {
		return false, nil
	}
	here, err := m.extent()
	if err != nil {
		return false, fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	return here.Path < m.log.Path || here.Path == m.log.Path && here.Size < m.log.Size, nil
}

// logs reports whether a file is one of the log.
func (m *Mirror) logs(path string) bool {
	return m.o.Log != "" && filepath.Dir(path) == m.o.Log && filepath.Ext(path) == ".jsonl"
}

// extent is how far the log goes that is here.
func (m *Mirror) extent() (to extent, err error) {
	entries, err := fs.ReadDir(m.root.FS(), filepath.ToSlash(m.o.Log)) // by name
	if errors.Is(err, fs.ErrNotExist) {
		return to, nil
	}
	for _, entry := range entries {
		info, failed := entry.Info()
		name := filepath.Join(m.o.Log, entry.Name())
		switch {
		case errors.Is(failed, fs.ErrNotExist) || failed == nil && !info.Mode().IsRegular() || !m.logs(name):
		case failed != nil:
			return to, failed
		default:
			to = extent{name, info.Size()}
		}
	}
	return to, err
}
