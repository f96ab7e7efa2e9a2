package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/cmd/internal/cli"
)

// A home is one server's, until its process ends, however it ends.
func TestHoldHome(t *testing.T) {
	home := t.TempDir()
	temp := filepath.Join(home, "run", "temp")
	left := filepath.Join(temp, ".t.jsonl")
	write := func() {
		t.Helper()
		if err := os.MkdirAll(temp, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write() // by a server that was killed
	first, err := cli.HoldHome(home, 9000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed server left is still there")
	}
	write()
	_, err = cli.HoldHome(home, 9001)
	held, ok := errors.AsType[*cli.HeldError](err)
	if want := (cli.HeldError{Home: home, PID: os.Getpid(), Port: 9000}); !ok || *held != want {
		t.Errorf("a second server: %v, want %v", err, &want)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a server that was refused took from the other: %v", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(temp); err == nil {
		t.Error("temporary sessions are still there")
	}
	third, err := cli.HoldHome(home, 9001)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Release(); err != nil {
		t.Error(err)
	}
}
