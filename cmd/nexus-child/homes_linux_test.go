package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever an agent does to the directories above a home of another server, the home is
// found as the agent's process starts again: it crashed, for which a limit is enough, with
// the home's directory closed, or with a thousand directories beside the home.
func TestHomesThatTheAgentHides(t *testing.T) {
	top := t.TempDir()
	home := filepath.Join(top, "allowed", "group", "home")
	place(t, home, "run/lock", "sessions/x.jsonl", "logs/x.log", "server.key")
	for i := range 2500 {
		if err := os.Mkdir(filepath.Join(filepath.Dir(home), fmt.Sprint(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{filepath.Dir(top), top} { // for the user that does not override modes
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(top, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := homes(filepath.Join(top, "own"), nil, []string{filepath.Join(top, "pipe")}); len(got) != 1 {
		t.Errorf("homes in a named pipe: %q", got)
	}
	for _, tt := range []struct {
		name, wall, closed, want string // below top; want is out of bounds
		mode                     os.FileMode
	}{
		{"open, with many beside it", "allowed/group", "allowed/group", "allowed/group/home", 0o755},
		{"the wall", "allowed/group", "allowed/group", "allowed/group", 0},
		{"the wall, which can be searched", "allowed/group", "allowed/group", "allowed/group", 0o311},
		{"the wall, which can be listed", "allowed/group", "allowed/group", "allowed/group", 0o644},
		{"a directory in the wall", "allowed", "allowed/group", "allowed/group", 0},
		{"a directory above the wall", "allowed/group", "allowed", "allowed", 0},
		{"the home", "allowed/group", "allowed/group/home", "allowed/group/home", 0},
		{"a directory of the home", "allowed/group", "allowed/group/home/run", "allowed/group/home", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			closed := filepath.Join(top, tt.closed)
			for dir := home; dir != top; dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(closed, tt.mode); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(closed, 0o755)
			found := make(chan []string)
			go func() {
				runtime.LockOSThread() // which ends with the goroutine
				if os.Geteuid() == 0 {
					_ = unix.Setfsuid(65534) // looks at files as somebody whom modes bind
				}
				found <- homes(filepath.Join(top, "own"), nil, []string{filepath.Join(top, tt.wall)})
			}()
			if got := <-found; !slices.Contains(got, filepath.Join(top, tt.want)) {
				t.Errorf("%s is not among %q", tt.want, got)
			}
		})
	}
}
