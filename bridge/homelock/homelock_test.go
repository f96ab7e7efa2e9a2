package homelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/homelock"
	"nexus.internal/protocol/safefile"
)

func open(t *testing.T, home string) *os.File {
	t.Helper()
	file, err := os.OpenFile(homelock.Path(home), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func want(t *testing.T, home string, want homelock.Server) {
	t.Helper()
	got, err := homelock.Find(home)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A server is found as long as it holds its home, and who looks for it keeps nobody
// from that home.
func TestFind(t *testing.T) {
	home := t.TempDir()
	want(t, home, homelock.Server{})
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, home, homelock.Server{})
	file := open(t, home)
	if err := homelock.Take(file); err != nil {
		t.Fatal(err)
	}
	want(t, home, homelock.Server{}) // it has told nothing yet
	if err := homelock.Record(file, 9000); err != nil {
		t.Fatal(err)
	}
	ours := homelock.Server{PID: os.Getpid(), Port: 9000, Runs: true}
	want(t, home, ours)
	if err := homelock.Take(open(t, home)); !errors.Is(err, safefile.ErrLocked) {
		t.Errorf("a second server: %v", err)
	}
	want(t, home, ours) // also after another one was refused
	file.Close()        // as the system does where the process is killed
	want(t, home, homelock.Server{PID: os.Getpid(), Port: 9000})
	said, err := os.ReadFile(homelock.Path(home))
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() // a copy, also of a home whose server lives, says nothing of its own last server
	if err := os.Mkdir(filepath.Join(other, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(homelock.Path(other), said, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, other, homelock.Server{Copied: true})
	for _, text := range []string{"12 9000", "12 70000\n", "x\n", ""} {
		if err := os.WriteFile(homelock.Path(home), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, home, homelock.Server{})
	}
}

// Those that wait for the end of a server have its lock for a moment then, and those
// that look have none: the next server gets it.
func TestTakeAmongOthers(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	first := open(t, home)
	if err := errors.Join(homelock.Take(first), homelock.Record(first, 9000)); err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for range 8 {
		waiting := open(t, home)
		others.Go(func() {
			if err := homelock.Wait(waiting); err != nil {
				t.Error(err)
			}
			waiting.Close()
		})
		others.Go(func() {
			for range 100 {
				if _, err := homelock.Find(home); err != nil {
					t.Error(err)
				}
			}
		})
	}
	first.Close()
	others.Wait()
	if err := homelock.Take(open(t, home)); err != nil {
		t.Errorf("the next server: %v", err)
	}
}
