package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/bridge/homelock"
)

// A home is brought in as long as no server uses it and nobody else could change it or have others' files read by it. Where there was nothing, nothing is made.
func TestHoldHome(t *testing.T) {
	outside := t.TempDir()
	link := func(name string) func(home string) error {
		return func(home string) error {
			path := filepath.Join(home, name)
			return errors.Join(os.RemoveAll(path), os.Symlink(outside, path))
		}
	}
	give := func(name string) func(home string) error {
		return func(home string) error { return os.Lchown(filepath.Join(home, name), 12345, -1) }
	}
	for _, test := range []struct {
		name   string
		change func(home string) error
		want   string // "" is no error
		root   bool   // only root can give files away
	}{
		{"a home that no server has used", func(string) error { return nil }, "", false},
		{"nothing saved", func(home string) error { return os.RemoveAll(filepath.Join(home, "sessions")) }, "it has no sessions", false},
		{"a later format", func(home string) error {
			return os.WriteFile(filepath.Join(home, "format.json"), []byte(`{"format":99}`), 0o600)
		}, "format 99", false},
		{"another's sessions", link("sessions"), "sessions is no directory of the home itself", false},
		{"another's plans", link("plans"), "plans is no directory of the home itself", false},
		{"another's results", link("plans/tasks"), "plans/tasks is no directory of the home itself", false},
		{"another's run", link("run"), "run is a symbolic link", false},
		{"others may write", func(home string) error { return os.Chmod(home, 0o777) }, "run chmod go-w", false},
		{"given away", give("."), fmt.Sprintf("run this as its owner (sudo -u '#12345' …), with nexus backup FILE --home HOME, then nexus restore FILE --home NEW as the user of the server (sudo -u '#%d' …)", os.Geteuid()), true},
		{"sessions given away", give("sessions"), "sessions is another user's", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				return
			}
			home := t.TempDir()
			if err := os.MkdirAll(filepath.Join(home, "plans", "tasks"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(home, "sessions"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := test.change(home); err != nil {
				t.Fatal(err)
			}
			release, used, err := holdHome(home, false)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), strings.ReplaceAll(test.want, "HOME", home)) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if err == nil {
				if err := used(); err != nil {
					t.Error(err)
				}
				release()
			}
			for _, dir := range []string{home, outside} {
				if left, _ := filepath.Glob(filepath.Join(dir, "*")); dir == outside && len(left) > 0 || dir == home && len(left) > 3 {
					t.Errorf("something was made: %q", left)
				}
			}
			if _, err := os.Stat(filepath.Join(home, "run", "lock")); err == nil {
				t.Error("a lock was made")
			}
		})
	}
}

// The server of a home is kept from it where it can be, and one that starts in a home without a lock is told of.
func TestHoldHomeAndItsServer(t *testing.T) {
	home := t.TempDir()
	for _, dir := range []string{"sessions", "run"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	release, used, err := holdHome(home, false)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	lock, err := os.Create(homelock.Path(home)) // of a server that starts
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lock.Chmod(0o600), homelock.Take(lock), homelock.Record(lock, 9000)); err != nil {
		t.Fatal(err)
	}
	if err := used(); err == nil || !strings.Contains(err.Error(), "was started meanwhile") {
		t.Errorf("of a server that has come it says %v", err)
	}
	if _, _, err := holdHome(home, false); err == nil {
		t.Error("a home that a server uses was taken")
	}
	lock.Close()
	release, used, err = holdHome(home, false)
	if err != nil {
		t.Fatal(err)
	}
	if lock, err = os.OpenFile(homelock.Path(home), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := homelock.Take(lock); err == nil {
		t.Error("a server was not kept from the home")
	}
	if err := used(); err != nil {
		t.Error(err)
	}
	release()
	if err := homelock.Take(lock); err != nil {
		t.Errorf("after the import: %v", err)
	}
}
