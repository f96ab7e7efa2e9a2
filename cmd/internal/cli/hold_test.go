package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/cmd/internal/cli"
)

// A directory is one server's, until its process ends, however it ends.
func TestHoldServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "9000")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, ".t.jsonl")
	write := func() {
		if err := os.WriteFile(left, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write() // by a server that was killed
	first, err := cli.HoldServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed server left is still there")
	}
	write()
	if _, err := cli.HoldServer(dir); !errors.Is(err, cli.ErrHeld) {
		t.Errorf("a second server: %v, want ErrHeld", err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a server that was refused took from the other: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there")
	}
	third, err := cli.HoldServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Release(); err != nil {
		t.Error(err)
	}
}
