package file_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/child/tool/file"
)

// watcher is a content that looks, as it is read, at the modes of files.
type watcher struct {
	pattern string
	modes   []fs.FileMode
}

func (w *watcher) Read(p []byte) (int, error) {
	paths, _ := filepath.Glob(w.pattern)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			w.modes = append(w.modes, info.Mode().Perm())
		}
	}
	return copy(p, "new\n"), io.EOF
}

// Nobody else may read a private file while it is replaced.
func TestAPrivateFileStaysPrivate(t *testing.T) {
	r := newRoom(t)
	r.put("key", "old\n")
	path := filepath.Join(r.dir, "key")
	r.must(os.Chmod(path, 0o640))
	w := &watcher{pattern: filepath.Join(r.dir, ".nexus-*")}
	r.must(file.Write(t.Context(), file.Space{Cwd: r.dir}, "key", w))
	info, err := os.Stat(path)
	r.must(err)
	if len(w.modes) != 1 || w.modes[0] != 0o600 || info.Mode().Perm() != 0o640 || r.get(path) != "new\n" {
		t.Errorf("modes %v while it is written, %v after it", w.modes, info.Mode())
	}
}
