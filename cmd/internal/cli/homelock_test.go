package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/cmd/internal/cli"
)

func nothing() error { return nil }

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
	first, err := cli.LockHome(home, 9000, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed server left is still there")
	}
	write()
	_, err = cli.LockHome(home, 9001, nothing)
	held, ok := errors.AsType[*cli.HomeLockedError](err)
	if want := (cli.HomeLockedError{Home: home, PID: os.Getpid(), Port: 9000}); !ok || *held != want {
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
	third, err := cli.LockHome(home, 9001, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Release(); err != nil {
		t.Error(err)
	}
}

// A server whose home was taken away, or given to another one, finds that out, and
// takes nothing from who has it now.
func TestHoldCheck(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, home string) error{
		"renamed":      func(_ *testing.T, home string) error { return os.Rename(home, home+".old") },
		"lock removed": func(_ *testing.T, home string) error { return os.Remove(filepath.Join(home, "run", "lock")) },
		"another's": func(t *testing.T, home string) error {
			if err := os.Remove(filepath.Join(home, "run", "lock")); err != nil {
				return err
			}
			other, err := cli.LockHome(home, 9001, nothing)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = other.Release() }) // its own is tested above
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			temp := filepath.Join(home, "run", "temp")
			if err := os.MkdirAll(temp, 0o700); err != nil {
				t.Fatal(err)
			}
			held, err := cli.LockHome(home, 9000, nothing)
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Check(); err != nil {
				t.Errorf("nothing is wrong: %v", err)
			}
			if err := spoil(t, home); err != nil {
				t.Fatal(err)
			}
			theirs := filepath.Join(temp, ".t.jsonl")
			if err := os.MkdirAll(temp, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(theirs, []byte("{}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := held.Check(); err == nil {
				t.Error("it is said to be as it was")
			}
			if err := held.Release(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(theirs); err != nil {
				t.Errorf("it took from the home's next server: %v", err)
			}
		})
	}
}
