package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

var (
	long   = time.Unix(1_700_000_000, 0)
	before = long.Add(time.Hour)
)

// unnamed begins an unnamed session that was written to long ago. It is closed.
func unnamed(t *testing.T, dir string) (id string) {
	t.Helper()
	j, state := open(t, journal.Options{Dir: dir})
	if j.Name() != "" || filepath.Base(j.Path()) != state.SessionID+".jsonl" {
		t.Fatalf("an unnamed session is %q in %s", j.Name(), j.Path())
	}
	if err := errors.Join(j.Append(message(protocol.RoleUser, "hello")), j.Close(), os.Chtimes(j.Path(), long, long)); err != nil {
		t.Fatal(err)
	}
	return state.SessionID
}

// Of all that lies among the sessions, Expire removes those alone that are old, have no
// name and are nobody's.
func TestExpire(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	old, withImages := unnamed(t, dir), unnamed(t, dir)
	mustWrite(t, path(withImages+".files/image"))
	mustWrite(t, path(withImages+".home/.cache/x"))
	want := []string{}
	keep := func(names ...string) { want = append(want, names...) }

	opened := unnamed(t, dir)
	keep(opened + ".jsonl")
	open(t, journal.Options{Dir: dir, Continue: opened})
	if err := os.Chtimes(path(opened+".jsonl"), long, long); err != nil {
		t.Fatal(err)
	}

	fresh := unnamed(t, dir)
	keep(fresh + ".jsonl")
	if err := os.Chtimes(path(fresh+".jsonl"), before, before); err != nil {
		t.Fatal(err)
	}

	agents := unnamed(t, dir) // an agent of a server went on with it
	keep(agents+".jsonl", agents+".records")
	mustWrite(t, path(agents+".records/1"))

	named, likeAnID := "worker", uuid.NewString()
	for _, name := range []string{named, likeAnID} {
		keep(name + ".jsonl")
		j, _ := open(t, journal.Options{Dir: dir, Name: name})
		if err := errors.Join(j.Close(), os.Chtimes(j.Path(), long, long)); err != nil || j.Name() != name {
			t.Fatalf("%q: %v", j.Name(), err)
		}
	}

	renamed := unnamed(t, dir)
	keep("renamed.jsonl")
	damaged, link := uuid.NewString(), uuid.NewString()
	keep(damaged+".jsonl", link+".jsonl", ".lock")
	mustWrite(t, path(damaged+".jsonl"))
	if err := errors.Join(os.Rename(path(renamed+".jsonl"), path("renamed.jsonl")), os.Chtimes(path(damaged+".jsonl"), long, long),
		os.Symlink("worker.jsonl", path(link+".jsonl"))); err != nil {
		t.Fatal(err)
	}

	n, err := journal.Expire(dir, before)
	if err != nil || n != 2 {
		t.Errorf("removed %d, %v, want %s and %s", n, err, old, withImages)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// A change of the sessions that is under way may be copying what would be removed.
func TestExpireWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	unnamed(t, dir)
	changing, err := safefile.Open(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := safefile.Lock(changing); err != nil {
		t.Fatal(err)
	}
	if n, err := journal.Expire(dir, before); n != 0 || err != nil {
		t.Errorf("beside a change: %d, %v", n, err)
	}
	if err := safefile.Release(changing); err != nil {
		t.Error(err)
	}
	if n, err := journal.Expire(dir, before); n != 1 || err != nil {
		t.Errorf("after it: %d, %v", n, err)
	}
	if _, err := journal.Expire(filepath.Join(dir, "none"), before); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

func mustWrite(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}
