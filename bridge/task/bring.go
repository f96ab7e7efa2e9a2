package task

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"nexus.internal/protocol/safefile"
)

// Bring copies the results of tasks that another home has in its directory of them, which nobody writes to and which need not be there: those
// that are not here, and that it could have kept by their names and sizes. It may be called again after an error.
func (r *Runner) Bring(ctx context.Context, dir string) error {
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
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !entry.Type().IsRegular() || !isRecord(entry.Name()) {
			continue
		}
		to := filepath.Join(r.o.Dir, entry.Name())
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		err := safefile.Copy(ctx, filepath.Join(dir, entry.Name()), to, maxRecord)
		if _, large := errors.AsType[*safefile.TooLargeError](err); err != nil && !large {
			return err
		}
	}
	r.prune()
	return nil
}

// isRecord reports whether a file of that name can be one that a result is kept in.
func isRecord(name string) bool {
	sum, ok := strings.CutSuffix(name, recordSuffix)
	return ok && len(sum) == 32 && strings.Trim(sum, "0123456789abcdef") == ""
}
