//go:build unix

package safefile_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol/safefile"
)

// The directories of dead processes go, whatever they left in them. Those of
// the living, and what is no directory, stay.
func TestSweep(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "scratch")
	living, err := safefile.MakeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	dead, precious := filepath.Join(parent, "dead"), filepath.Join(t.TempDir(), "precious")
	made := filepath.Join(t.TempDir(), "dead") // MakeDir sweeps in the background, so it comes whole
	if err := errors.Join(
		os.MkdirAll(filepath.Join(made, "closed", "sub"), 0o700), os.Chmod(filepath.Join(made, "closed"), 0), os.Rename(made, dead),
		os.Mkdir(precious, 0o700), os.Symlink(precious, filepath.Join(parent, "link")),
	); err != nil {
		t.Fatal(err)
	}
	if err := safefile.SweepDirs(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	next, err := safefile.MakeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{living.Path(), next.Path(), precious} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(living.Remove(), next.Remove()); err != nil { // their sweeps have ended then
		t.Error(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a sweep: %v", err)
	}
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	third, err := safefile.MakeDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the next directory was made and removed: %v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A home may have a longer path than a socket can have.
func TestSocketPath(t *testing.T) {
	for _, length := range []int{1, 120} {
		dir := filepath.Join(t.TempDir(), strings.Repeat("x", length))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "socket")
		var ln net.Listener
		err := safefile.SocketPath(path, func(short string) (err error) {
			ln, err = net.Listen("unix", short)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		err = safefile.SocketPath(path, func(short string) error {
			conn, err := net.Dial("unix", short)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if info, failed := os.Stat(path); err != nil || failed != nil || info.Mode().Type() != os.ModeSocket {
			t.Errorf("%d: %v, %v", length, err, failed)
		}
	}
}
