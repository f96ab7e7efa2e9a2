//go:build unix

package sessions_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

// Whatever lies among the sessions, those that are sound are listed, what cannot
// be read says so, nothing else is followed or waited for, and none of it can be
// changed into something else.
func TestHostileDirectory(t *testing.T) {
	home, err := os.MkdirTemp("", "s") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	c := sessions.New(home, nil)
	save(t, c, "sound", 2, transcript.Settings{})
	dir := filepath.Dir(c.Path("sound"))
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "secret\n")
	socket, err := net.Listen("unix", filepath.Join(dir, "socket.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := errors.Join(
		os.Symlink(outside, c.Path("link")), os.Symlink(c.Path("loop"), c.Path("loop")), os.Symlink("/dev/zero", c.Path("device")),
		unix.Mkfifo(c.Path("fifo"), 0o600), os.Mkdir(c.Path("folder"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new\nline", "es\x1bcape", "not\xffutf8", "-dash", strings.Repeat("x", 65)} {
		write(t, filepath.Join(dir, name+".jsonl"), savedLine)
	}
	write(t, c.Path("empty"), "")
	write(t, c.Path("zeros"), strings.Repeat("\x00", 4096))
	write(t, c.Path("foreign"), savedLine)
	want := "foreign, sound, zeros"
	if os.Getuid() == 0 {
		// Root can read it all the same.
		if err := os.Chown(c.Path("foreign"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(c.Path("foreign"), 0); err != nil {
		t.Fatal(err)
	} else {
		want = "foreign !, sound, zeros"
	}
	if got := listed(t, c); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, name := range []string{"link", "loop", "device", "fifo", "folder", "socket", "empty", "new\nline"} {
		for what, err := range map[string]error{
			"clone": c.Clone(name, "copy"), "rename": c.Rename(name, "copy"), "delete": c.Delete(name),
		} {
			if !errors.Is(err, sessions.ErrNotFound) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
		if name == "empty" || strings.Contains(name, "\n") {
			continue // one that was not begun gives way, and the other is no name
		}
		_, imported := c.Import(fmt.Appendf(nil, `{"agent_id":%q,"messages":[]}`, name))
		for what, err := range map[string]error{"clone": c.Clone("sound", name), "rename": c.Rename("sound", name), "import": imported} {
			if !errors.Is(err, sessions.ErrExists) {
				t.Errorf("%s onto %q: %v", what, name, err)
			}
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "secret\n" {
		t.Errorf("what a link leads to: %q, %v", data, err)
	}
	if err := c.Clone("zeros", "copy"); !errors.Is(err, transcript.ErrNoSession) {
		t.Errorf("clone of zeros: %v", err)
	}
	if got := listed(t, c); got != want {
		t.Errorf("afterwards %s, want %s", got, want)
	}
}

// What lies in the place of a change's own files is not followed and not waited
// for. A lock that is none lets nothing be changed.
func TestHostileLeftovers(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for _, name := range []string{".change", "copy.next", ".lock"} {
		for what, plant := range map[string]func(path string) error{
			"link":     func(path string) error { return os.Symlink(outside, path) },
			"dangling": func(path string) error { return os.Symlink(outside+"-not", path) },
			"fifo":     func(path string) error { return unix.Mkfifo(path, 0o600) },
			"folder":   func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				c := sessions.New(t.TempDir(), nil)
				save(t, c, "sound", 2, transcript.Settings{})
				write(t, outside, "secret\n")
				if err := plant(filepath.Join(filepath.Dir(c.Path("sound")), name)); err != nil {
					t.Fatal(err)
				}
				err := c.Clone("sound", "copy")
				if name == ".lock" {
					if what != "fifo" && err == nil {
						t.Error("a lock that is none was taken")
					}
				} else if s, lost := c.Summary("copy"); err != nil || lost != nil || s.Messages != 2 {
					t.Errorf("the copy: %v, %+v, %v", err, s, lost)
				}
				if data, err := os.ReadFile(outside); err != nil || string(data) != "secret\n" {
					t.Errorf("what a link leads to: %q, %v", data, err)
				}
				if _, err := os.Lstat(outside + "-not"); err == nil {
					t.Error("a file was made where a link leads to")
				}
				if s, err := c.Summary("sound"); err != nil || s.Messages != 2 {
					t.Errorf("the session: %+v, %v", s, err)
				}
			})
		}
	}
}

const savedLine = `{"type":"session","version":1,"session_id":"s","created_at":"2026-01-02T03:04:05Z"}` + "\n"

// listed are the names of the list, in order, those that are damaged with a mark.
func listed(t *testing.T, c *sessions.Catalogue) string {
	t.Helper()
	page, _, err := c.List(0, 100, true)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range page {
		if e.Damaged != nil {
			e.Name += " !"
		}
		if strings.HasPrefix(e.Name, "sound") && e.Damaged != nil {
			t.Error(e.Damaged)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Sessions that come and go while they are listed spoil no list, and those that
// stay are in each.
func TestListWhileSessionsVanish(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	save(t, c, "stays", 1, transcript.Settings{})
	stop := make(chan struct{})
	var work sync.WaitGroup
	for i := range 2 {
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint("goes-", i, "-", n%50)
				save(t, c, id, 1, transcript.Settings{})
				if err := os.Remove(c.Path(id)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		page, _, err := c.List(0, 1000, false)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(page, func(e sessions.Entry) bool { return e.Name == "stays" && e.Damaged == nil }) {
			t.Fatalf("one that stays is not in %+v", page)
		}
	}
	close(stop)
	work.Wait()
}

// A copy is not older than what it says of its beginning.
func TestTimesOfACopy(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	save(t, c, "a", 1, transcript.Settings{})
	for i := range 50 {
		if err := c.Clone("a", fmt.Sprint("copy-", i)); err != nil {
			t.Fatal(err)
		}
	}
	page, _, err := c.List(0, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page {
		if e.UpdatedAt.Before(e.Header.CreatedAt) {
			t.Errorf("%s was created at %v and updated at %v", e.Name, e.Header.CreatedAt, e.UpdatedAt)
		}
	}
}
