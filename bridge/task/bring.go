package task

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"nexus.internal/protocol/safefile"
)

// Bring copies the results of tasks that another home has in its directory of them, which nobody writes to and which need not be there: those
// that are not here. It may be called again after an error.
func (r *Runner) Bring(dir string) error {
	entries, err := safefile.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.makeDir(); err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || filepath.Ext(entry.Name()) != recordSuffix {
			continue
		}
		to := filepath.Join(r.o.Dir, entry.Name())
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := safefile.Copy(filepath.Join(dir, entry.Name()), to); err != nil {
			return err
		}
	}
	r.prune()
	return nil
}
