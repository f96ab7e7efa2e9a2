package sessions_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// A session of another home comes as it stands, with all that is kept of its agent, or under another name that it and what it says of its creator bear.
func TestBring(t *testing.T) {
	from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
	save(t, from, "a", 3, transcript.Settings{Cwd: new("/site"), ParentAgentID: new("boss")})
	saveParts(t, from, "a", "of a")
	saveParts(t, c, "a", "of an earlier a")
	want, err := os.ReadFile(from.Path("a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, from.Path("a"), string(want)+`{"type":"mess`) // a write that was cut off
	if err := os.Chtimes(from.Path("a"), begun, begun); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sessions.Bring(c, from, "a", "a", ""), sessions.Bring(c, from, "a", "old-a", "old-boss")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(c.Path("a"))
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{"a", "old-a"} {
		if diff := cmp.Diff(there(t, from, "a"), there(t, c, name)); diff != "" {
			t.Errorf("what belongs to %s (-there +here):\n%s", name, diff)
		}
		if info, err := os.Stat(c.Path(name)); err != nil || !info.ModTime().Equal(begun) {
			t.Errorf("%s was used at %v, %v, want %v", name, info.ModTime(), err, begun)
		}
	}
	renamed, err := c.Summary("old-a")
	if err != nil || renamed.Header.Name != "old-a" || renamed.Header.SessionID != "id-a" || protocol.Value(renamed.Settings.ParentAgentID) != "old-boss" || renamed.Messages != 3 {
		t.Errorf("under another name: %+v, %v", renamed, err)
	}
	if !from.Exists("a") {
		t.Error("the other home has lost it")
	}
}

// What cannot come leaves nothing here.
func TestBringRefused(t *testing.T) {
	from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
	save(t, from, "a", 1, transcript.Settings{})
	save(t, from, "held", 1, transcript.Settings{})
	save(t, c, "taken", 2, transcript.Settings{})
	write(t, from.Path("damaged"), "not a session\n")
	save(t, from, "linked", 1, transcript.Settings{})
	outside := t.TempDir()
	write(t, filepath.Join(outside, "image"), "secret\n")
	if err := os.Symlink(outside, filepath.Dir(image(from, "linked"))); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(from.Path("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id, as string
		want         error
	}{
		{"nothing", "nobody", "x", sessions.ErrNotFound},
		{"onto another", "a", "taken", sessions.ErrExists},
		{"what is in use", "held", "x", sessions.ErrInUse},
		{"what is damaged", "damaged", "x", transcript.ErrNoSession},
		{"with another directory in the place of its images", "linked", "x", sessions.ErrUnreadable},
		{"out of the directory", "a", "../x", sessions.ErrNotFound},
		{"from out of the directory", "../a", "x", sessions.ErrNotFound},
	} {
		if err := sessions.Bring(c, from, tt.id, tt.as, ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	if got, err := c.Summary("taken"); err != nil || got.Messages != 2 {
		t.Errorf("what had the name is %+v, %v", got, err)
	}
	for _, part := range []string{".jsonl", ".records", ".files", ".next"} {
		if _, err := os.Lstat(filepath.Join(c.Dir("x"), "x"+part)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of what did not come there is x%s", part)
		}
	}
}
