package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
)

// removeAll removes a directory and what a program that is gone left in it,
// directories that it made read-only included.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // then what is in it stays, and so does it
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
