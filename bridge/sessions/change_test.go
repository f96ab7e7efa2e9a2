//go:build unix

package sessions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

func TestChanges(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	save(t, c, "a", 3, transcript.Settings{Cwd: new("/site"), ParentAgentID: new("boss"), Depth: new(uint64(2))})
	saveParts(t, c, "a", "of a")
	saveParts(t, c, "b", "of an earlier b")
	if err := c.Clone("a", "b"); err != nil {
		t.Fatal(err)
	}
	a, err := c.Summary("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Summary("b")
	if err != nil {
		t.Fatal(err)
	}
	if b.Header.Name != "b" || b.Header.SessionID == a.Header.SessionID || !b.Header.CreatedAt.After(a.Header.CreatedAt) {
		t.Errorf("the copy's header is %+v", b.Header)
	}
	a.Header, b.Header, a.SessionID, b.SessionID = transcript.Header{}, transcript.Header{}, "", ""
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the copy differs (-original +copy):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"of a", "of a", "-", "-"}, there(t, c, "b")); diff != "" {
		t.Errorf("what belongs to the copy (-want +got):\n%s", diff)
	}
	if err := c.Rename("a", "c"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"of a", "of a", "of a", "of a"}, there(t, c, "c")); diff != "" || c.Exists("a") || !c.Exists("c") {
		t.Errorf("renamed (-want +got):\n%s", diff)
	}
	if err := c.Delete("c"); err != nil || c.Exists("c") {
		t.Errorf("delete: %v", err)
	}
	if diff := cmp.Diff([]string{"-", "-", "-", "-"}, there(t, c, "c")); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	// A temporary one becomes a named one, and the other way for a copy.
	save(t, c, ".1", 1, transcript.Settings{})
	saveParts(t, c, ".1", "of .1")
	if err := errors.Join(c.Rename(".1", "kept"), c.Clone("kept", ".2")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"of .1", "of .1", "of .1", "of .1"}, there(t, c, "kept")); diff != "" || !c.Exists("kept") {
		t.Errorf("promoted (-want +got):\n%s", diff)
	}
	if _, err := c.Summary(".2"); err != nil {
		t.Errorf("a temporary copy: %v", err)
	}
	// Nothing is left of the work itself.
	entries, err := os.ReadDir(filepath.Dir(c.Path("kept")))
	for _, e := range entries {
		if err != nil || strings.HasPrefix(e.Name(), ".") && e.Name() != ".lock" || strings.HasSuffix(e.Name(), ".next") {
			t.Errorf("left behind: %s, %v", e.Name(), err)
		}
	}
}

func TestRefusedChanges(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	save(t, c, "a", 1, transcript.Settings{})
	save(t, c, "b", 2, transcript.Settings{})
	write(t, c.Path("damaged"), "not a session\n")
	write(t, filepath.Join(home, "out.jsonl"), "{}\n")
	if err := errors.Join(os.Symlink(filepath.Join(home, "out.jsonl"), c.Path("link")), os.Symlink("nowhere", c.Path("dangling"))); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(c.Path("b"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"clone nothing", c.Clone("nobody", "x"), sessions.ErrNotFound},
		{"clone onto another", c.Clone("a", "b"), sessions.ErrExists},
		{"clone onto itself", c.Clone("a", "a"), sessions.ErrExists},
		{"clone out of the directory", c.Clone("../out", "x"), sessions.ErrNotFound},
		{"clone into another directory", c.Clone("a", "../x"), sessions.ErrNotFound},
		{"clone a link", c.Clone("link", "x"), sessions.ErrNotFound},
		{"clone onto a link", c.Clone("a", "dangling"), sessions.ErrExists},
		{"clone what is damaged", c.Clone("damaged", "x"), transcript.ErrNoSession},
		{"rename nothing", c.Rename("nobody", "x"), sessions.ErrNotFound},
		{"rename onto another", c.Rename("a", "b"), sessions.ErrExists},
		{"rename onto a link", c.Rename("a", "dangling"), sessions.ErrExists},
		{"rename a link", c.Rename("link", "x"), sessions.ErrNotFound},
		{"rename out of the directory", c.Rename("a", "../x"), sessions.ErrNotFound},
		{"rename what is in use", c.Rename("b", "x"), sessions.ErrInUse},
		{"delete what is in use", c.Delete("b"), sessions.ErrInUse},
		{"delete nothing", c.Delete("nobody"), sessions.ErrNotFound},
		{"delete a link", c.Delete("link"), sessions.ErrNotFound},
		{"delete something else", c.Delete("../out"), sessions.ErrNotFound},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	if err := c.Clone("b", "copy"); err != nil {
		t.Errorf("clone what is in use: %v", err)
	}
	if _, err := os.Stat(filepath.Join(home, "out.jsonl")); err != nil || c.Exists("x") || !c.Exists("a") {
		t.Errorf("a refusal changed something: %v", err)
	}
	if err := c.Delete("damaged"); err != nil {
		t.Errorf("delete what is damaged: %v", err)
	}
}

// changeOnAndOn is the process that is killed: it says when it begins.
func changeOnAndOn(home, what string) {
	c := sessions.New(home, nil)
	fmt.Println("begun")
	for i := 0; ; i++ {
		var err error
		switch what {
		case "clone":
			err = c.Clone("a", fmt.Sprint("copy-", i))
		case "rename":
			err = errors.Join(c.Rename("a", "b"), c.Rename("b", "a"))
		case "delete":
			err = errors.Join(c.Clone("a", "copy"), c.Delete("copy"))
		case "bring":
			err = sessions.Bring(context.Background(), c, sessions.New(filepath.Join(home, "from"), nil), "a", fmt.Sprint("copy-", i), "")
		case "import":
			_, err = c.Import(fmt.Appendf(nil, `{"agent_id":"copy-%d","messages":[%s]}`, i, strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, 5), ",")))
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

// A process that is killed while it changes sessions leaves each of them as it
// was or as it was to be, with all that belongs to it, and none twice.
func TestKilledInAChange(t *testing.T) {
	for _, what := range []string{"clone", "rename", "delete", "import", "bring"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			c := sessions.New(home, nil)
			save(t, c, "a", 5, transcript.Settings{Cwd: new("/site")})
			saveParts(t, c, "a", "whole")
			if what == "rename" {
				save(t, c, "copy-made", 5, transcript.Settings{ParentAgentID: new("a")})
				saveParts(t, c, "copy-made", "whole")
			}
			if what == "bring" {
				from := sessions.New(filepath.Join(home, "from"), nil)
				save(t, from, "a", 5, transcript.Settings{})
				saveParts(t, from, "a", "whole")
			}
			want, err := os.ReadFile(c.Path("a"))
			if err != nil {
				t.Fatal(err)
			}
			settled := 0
			for range 60 {
				kill(t, home, what)
				if _, err := os.Stat(filepath.Join(home, "sessions", ".change")); err == nil {
					settled++
				}
				if what == "rename" {
					oneOf(t, c, "before") // also before anything is put right
				}
				if err := sessions.Tidy(home); err != nil {
					t.Fatal(err)
				}
				checkAll(t, c, what, want)
			}
			if settled == 0 {
				t.Error("no kill came within a change: this proves nothing")
			}
		})
	}
}

// kill starts a process that changes sessions, and ends it somewhere.
func kill(t *testing.T, home, what string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], changerArg, home, what)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatalf("the process did not begin: %v", err)
	}
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(8 * time.Millisecond))))
	<-timer.C
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	_, _ = said.ReadFrom(out)
	_ = cmd.Wait()
	if cmd.ProcessState.Exited() {
		t.Fatalf("the process ended by itself: %s", said.String())
	}
}

// oneOf is the name that the session has: a or b, and not both.
func oneOf(t *testing.T, c *sessions.Catalogue, when string) string {
	t.Helper()
	a, b := c.Exists("a"), c.Exists("b")
	if a == b {
		t.Fatalf("%s: a is there: %v, b is there: %v", when, a, b)
	}
	if a {
		return "a"
	}
	return "b"
}

func checkAll(t *testing.T, c *sessions.Catalogue, what string, want []byte) {
	t.Helper()
	name := oneOf(t, c, "after")
	got, err := os.ReadFile(c.Path(name))
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Fatalf("%s: %v (-want +got):\n%s", name, err, diff)
	}
	if diff := cmp.Diff([]string{"whole", "whole", "whole", "whole"}, there(t, c, name)); diff != "" {
		t.Fatalf("what belongs to %s (-want +got):\n%s", name, diff)
	}
	entries, err := os.ReadDir(filepath.Dir(c.Path("a")))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		id, rest, _ := strings.Cut(e.Name(), ".")
		switch {
		case id == name || e.Name() == ".lock":
		case !strings.HasPrefix(id, "copy"):
			t.Fatalf("%s is nobody's", e.Name())
		case rest == "jsonl":
			if s, err := c.Summary(id); err != nil || s.Messages != 5 || s.Header.Name != id {
				t.Fatalf("%s: %+v, %v", id, s, err)
			}
			parts := []string{"whole", "whole", "-", "-"}
			if what == "rename" {
				if s, _ := c.Summary(id); *s.Settings.ParentAgentID != name {
					t.Fatalf("%s was created by %s, which is %s now", id, *s.Settings.ParentAgentID, name)
				}
				parts = []string{"whole", "whole", "whole", "whole"}
			}
			if what == "bring" {
				parts = []string{"whole", "whole", "whole", "whole"}
			}
			if what == "import" {
				parts = []string{"-", "-", "-", "-"}
			}
			if diff := cmp.Diff(parts, there(t, c, id)); diff != "" {
				t.Fatalf("what belongs to %s (-want +got):\n%s", id, diff)
			}
			if what == "clone" || what == "import" || what == "bring" {
				if err := c.Delete(id); err != nil {
					t.Fatal(err)
				}
			}
		case !c.Exists(id):
			if _, err := os.Lstat(filepath.Join(filepath.Dir(c.Path("a")), e.Name())); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s is of no session", e.Name())
			}
		}
	}
	if what == "delete" && c.Exists("copy") {
		if err := c.Delete("copy"); err != nil {
			t.Fatal(err)
		}
	}
	if name == "b" {
		if err := c.Rename("b", "a"); err != nil {
			t.Fatal(err)
		}
	}
}
