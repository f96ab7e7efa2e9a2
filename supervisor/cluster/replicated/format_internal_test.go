package replicated

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"nexus.internal/fixtures"
	"nexus.internal/supervisor/cluster/mirror"
)

// What a machine says of an agent is as it was recorded; nothing is read of a later format.
func TestRecordedAbout(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/about-1.json")
	want := about{Machine: "a", Cwd: "/srv/work", Shared: true, Fresh: true}
	if text, err := json.Marshal(want); err != nil || string(text) != string(recorded) {
		t.Errorf("it is told as %s, %v; if that is meant, it is another format", text, err)
	}
	if got, err := readAbout("worker", recorded); got != want || err != nil {
		t.Errorf("it is read as %+v, %v", got, err)
	}
	if _, err := readAbout("worker", []byte(`{"format":2,"machine":"a"}`)); !errors.Is(err, mirror.ErrUnreadable) || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
}

// A note is kept as it was recorded. With one of a later format the store does not start, and the note stays.
func TestRecordedNote(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/note-1.json")
	kept := notes{dir: t.TempDir(), of: map[string]note{}}
	path := filepath.Join(kept.dir, encoded("worker"))
	want := note{Epoch: 7, Files: "00ff", From: "b", Left: true}
	if err := kept.write("worker", want); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(recorded) {
		t.Errorf("it is kept as %s, %v; if that is meant, it is another format", text, err)
	}
	if err := kept.read(); err != nil || kept.get("worker") != want {
		t.Errorf("it is read as %+v, %v", kept.get("worker"), err)
	}
	later := `{"format":2,"epoch":"seven"}`
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Dir: filepath.Dir(kept.dir)})
	s.notes.dir = kept.dir
	defer s.Close()
	if err := s.Start(nil); err == nil || !strings.Contains(err.Error(), "has format 2, and this program reads 1: upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != later {
		t.Errorf("the note is %s, %v", text, err)
	}
}
