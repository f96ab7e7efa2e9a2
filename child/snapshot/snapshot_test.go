package snapshot_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nexus.internal/child/snapshot"
)

// kept is what a store has of a turn: each path with what was in it, or why that is not there.
func kept(t *testing.T, s *snapshot.Store, turn time.Time) string {
	t.Helper()
	var all []string
	for _, e := range s.Turn(turn) {
		line := filepath.Base(e.Path) + ": " + e.Lost
		if e.Lost == "" && e.Was.State.Size > 0 {
			f, err := s.Content(e)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			line += string(text)
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

// keep keeps a file that has a text.
func keep(t *testing.T, s *snapshot.Store, name, text string) *snapshot.Entry {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return s.Keep(snapshot.Entry{Path: path, Was: snapshot.Past{State: snapshot.StateOf(info), Perm: info.Mode()}}, f)
}

// What was kept is there for a later process, a turn at a time, and goes with its turn.
func TestStoreOutlivesItsProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s.undo")
	first, second := time.Unix(1, 5).UTC(), time.Unix(2, 0).UTC()
	s := snapshot.New(snapshot.Options{Dir: dir})
	if s.Turn(first) != nil || s.Clear() != nil {
		t.Error("an empty store has something")
	}
	s.BeginTurn(first)
	if _, err := os.Stat(dir); err == nil {
		t.Error("a turn without changes makes a directory")
	}
	keep(t, s, "a", "1")
	s.Drop(keep(t, s, "never", "x"))
	s.BeginTurn(second)
	keep(t, s, "b", "2")
	keep(t, s, "c", "")

	s = snapshot.New(snapshot.Options{Dir: dir})
	if got := kept(t, s, second); got != "b: 2, c: " {
		t.Errorf("of the second turn: %q", got)
	}
	s.BeginTurn(second)
	keep(t, s, "d", "3")
	if got := kept(t, s, first) + "; " + kept(t, s, second); got != "a: 1; b: 2, c: , d: 3" {
		t.Errorf("with another change: %q", got)
	}
	s.Forget(second)
	s.Forget(first)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// The oldest give way, what is too large is not copied, and what is damaged is passed over.
func TestBounds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s.undo")
	s := snapshot.New(snapshot.Options{Dir: dir, MaxTotal: 10})
	at := time.Unix(1, 0).UTC()
	s.BeginTurn(at)
	for _, name := range []string{"a", "b", "c"} {
		keep(t, s, name, strings.Repeat(name, 5))
	}
	const lost = "later changes took the room for what was in it"
	if got := kept(t, s, at); got != "a: "+lost+", b: bbbbb, c: ccccc" {
		t.Errorf("beyond the bound: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000002.json"), []byte(`{"path":`), 0o600); err != nil {
		t.Fatal(err)
	}
	s = snapshot.New(snapshot.Options{Dir: dir, MaxTotal: 10})
	s.BeginTurn(at)
	if got := kept(t, s, at); got != "a: "+lost+", c: ccccc" {
		t.Errorf("with a damaged entry: %q", got)
	}

	large, err := os.Create(filepath.Join(t.TempDir(), "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if err := large.Truncate(snapshot.MaxFile + 1); err != nil {
		t.Fatal(err)
	}
	info, err := large.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Keep(snapshot.Entry{Path: large.Name(), Was: snapshot.Past{State: snapshot.StateOf(info)}}, large); !strings.Contains(e.Lost, "at most 67108864 are kept") {
		t.Errorf("of a large file: %q", e.Lost)
	}
}

// Where nothing can be written, the changes of this process are known all the same.
func TestNoRoom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := snapshot.New(snapshot.Options{Dir: filepath.Join(file, "undo")})
	at := time.Unix(1, 0).UTC()
	s.BeginTurn(at)
	keep(t, s, "a", "1")
	if got := kept(t, s, at); got != "a: what was in it could not be kept: not a directory" {
		t.Errorf("got %q", got)
	}
}
