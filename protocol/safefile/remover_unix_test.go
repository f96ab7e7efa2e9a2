//go:build unix

package safefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"nexus.internal/protocol/safefile"
)

// What is discarded has lost its name at once, and is gone when the Remover is closed in
// time. What stays is told.
func TestRemover(t *testing.T) {
	top := t.TempDir()
	full := func(name string) string {
		t.Helper()
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Join(path, "a", "b"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var told []error // by Discard, or by the goroutine, which Close ends
	r := safefile.NewRemover(func(err error) { told = append(told, err) })
	empty := full("empty/in")
	for _, path := range []string{filepath.Join(empty, "a", "b"), full("first"), full("second"), filepath.Join(top, "none")} {
		r.Discard(path)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(r.Close(time.Hour), os.RemoveAll(filepath.Join(top, "empty"))); err != nil || len(told) > 0 {
		t.Errorf("error %v, told %v", err, told)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}

	// After Close it removes at once.
	r.Discard(full("late"))
	if left, err := os.ReadDir(top); err != nil || len(left) > 0 {
		t.Errorf("after its end, left is %v, %v", left, err)
	}

	// A name that is taken is no obstacle, and an error is told.
	r = safefile.NewRemover(func(err error) { told = append(told, err) })
	full("taken.discarded")
	taken := full("taken")
	r.Discard(taken)
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Discard(filepath.Join(file, "in"))
	if err := r.Close(time.Hour); err != nil || len(told) != 1 {
		t.Errorf("error %v, told %v", err, told)
	}
	if _, err := os.Lstat(taken); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a name that is taken: %v", err)
	}
}

// Discard does not wait for the removal, which Close ends: what is left is named, and has
// the name that a sweep finds.
func TestRemoverIsEnded(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "large")
	for i := range 300 {
		if err := os.MkdirAll(filepath.Join(dir, "a", string(rune('a'+i%26)), string(rune('a'+i/26))), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r := safefile.NewRemover(func(err error) { t.Error(err) })
	r.Discard(dir)
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its name: %v", err)
	}
	err := r.Close(0)
	left, failed := os.ReadDir(top)
	if failed != nil || (err != nil) != (len(left) > 0) { // it may have been quick
		t.Errorf("error %v, left is %v, %v", err, left, failed)
	}
}
