//go:build unix

package safefile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/protocol/safefile"
)

// deepTree makes a tree of so many levels in dir that no path names its bottom, as a
// program can do: what there is moves to the end of a new chain, again and again.
func deepTree(t *testing.T, dir string, bottom func(dir string) error) (top string) {
	t.Helper()
	top = filepath.Join(dir, "all")
	chain := "new" + strings.Repeat("/d", 500)
	if err := errors.Join(os.Mkdir(top, 0o700), bottom(top)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := errors.Join(
			os.MkdirAll(filepath.Join(dir, chain), 0o700),
			os.Rename(top, filepath.Join(dir, chain, "e")), os.Chmod(filepath.Join(dir, chain), 0o500),
			os.Rename(filepath.Join(dir, "new"), top),
		); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// A tree of 30,000 levels goes with few descriptors, and what its links name stays. If it
// did not, one command of a sandboxed program could fill the disk for good.
func TestRemoveDeepTree(t *testing.T) {
	dir, precious := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	top := deepTree(t, dir, func(bottom string) error {
		return errors.Join(
			os.Symlink(precious, filepath.Join(bottom, "link")), os.WriteFile(filepath.Join(bottom, "file"), []byte("x"), 0),
			os.MkdirAll(filepath.Join(bottom, "closed", "sub", "sub"), 0o700), os.Chmod(filepath.Join(bottom, "closed", "sub"), 0),
			os.Chmod(filepath.Join(bottom, "closed"), 0), syscall.Mkfifo(filepath.Join(bottom, "pipe"), 0),
		)
	})

	withDescriptors(t, 32, func() {
		if err := safefile.RemoveAll(t.Context(), top); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Error(err)
	}
	if err := safefile.RemoveAll(t.Context(), top); err != nil {
		t.Errorf("nothing is there: %v", err)
	}
}

// withDescriptors runs f where the process may have no more open files.
func withDescriptors(t *testing.T, limit uint64, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = limit
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// A tree with many names on each level goes as a whole.
func TestRemoveWideTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "wide")
	for _, a := range "abcdefghijklmnopqrstuvwxyz" {
		for _, b := range "abcdefghijklmnopqrst" {
			if err := os.MkdirAll(filepath.Join(top, string(a), string(b), "c", "d"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := safefile.RemoveAll(t.Context(), top); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
}

// The removal ends with its context; the next one goes on.
func TestRemoveEndsWithItsContext(t *testing.T) {
	top := deepTree(t, t.TempDir(), func(string) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := safefile.RemoveAll(ctx, top); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := os.Lstat(top); err != nil {
		t.Error(err)
	}
	if err := safefile.RemoveAll(t.Context(), top); err != nil {
		t.Error(err)
	}
}
