package sessions_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

// The home of an agent's programs goes with its session: it has the new name after a rename,
// is not copied, and is removed with the session, read-only directories of caches included.
func TestHomesGoWithTheirSessions(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	save(t, c, "a", 1, transcript.Settings{})
	cached := func(id string) string { return beside(c, id, ".home/.cache/go-mod/m@v1/file") }
	write(t, cached("a"), "x")
	if err := os.Chmod(filepath.Dir(cached("a")), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Clone("a", "copy"), c.Rename("a", "b")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(cached("b")); string(text) != "x" {
		t.Errorf("renamed: %q, %v", text, err)
	}
	for _, id := range []string{"a", "copy"} {
		if _, err := os.Lstat(beside(c, id, ".home")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s has a home: %v", id, err)
		}
	}
	if err := c.Delete("b"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(home, "run", "scratch"))
	if _, gone := os.Lstat(beside(c, "b", ".home")); !errors.Is(gone, os.ErrNotExist) || len(left) != 0 || err != nil {
		t.Errorf("deleted: %v, left %v, %v", gone, left, err)
	}
	// A server that was killed left a temporary agent's.
	write(t, cached(".t"), "x")
	if err := sessions.Tidy(home); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(beside(c, ".t", ".home")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a temporary agent's home: %v", err)
	}
}
