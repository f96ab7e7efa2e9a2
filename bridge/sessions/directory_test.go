package sessions_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

// sameList fails unless c lists what a catalogue lists that has just been made.
func sameList(t *testing.T, c *sessions.Catalogue, home string, after any) {
	t.Helper()
	for _, temp := range []bool{false, true} {
		list := func(c *sessions.Catalogue) (all []string) {
			page, total, err := c.List(0, 1<<20, temp)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				all = append(all, fmt.Sprint(e.Name, e.UpdatedAt, e.Temp, e.Messages, e.Damaged))
			}
			return append(all, fmt.Sprint(total))
		}
		if diff := cmp.Diff(list(sessions.New(home, nil)), list(c)); diff != "" {
			t.Fatalf("after %v, temp %v (-new catalogue +old catalogue):\n%s", after, temp, diff)
		}
	}
}

// Whatever becomes of the files of a home, a list is that of its files.
func TestListOfChangedFiles(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	sameList(t, c, home, "nothing")
	r := rand.New(rand.NewPCG(1, 0))
	ids := []string{"a", "b", "c.d", ".1", "00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001"}
	save(t, c, "a", 1, transcript.Settings{})
	save(t, c, ".1", 1, transcript.Settings{})
	for step := range 400 {
		one, other := ids[r.IntN(len(ids))], ids[r.IntN(len(ids))]
		path := c.Path(one)
		what := r.IntN(11)
		var err error
		switch what {
		case 0, 1:
			if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
				_ = os.Remove(path)
			}
			save(t, c, one, r.IntN(3), transcript.Settings{})
		case 2:
			var f *os.File
			if f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
				_, err = f.WriteString("{\"type\":\"note\",\"key\":\"k\",\"at\":\"2026-01-02T03:04:05Z\"}\n")
				f.Close()
			}
		case 3:
			err = os.Remove(path)
		case 4:
			err = os.Rename(path, c.Path(other))
		case 5:
			at := begun.Add(time.Duration(r.IntN(1e6)) * time.Second)
			err = os.Chtimes(path, at, at)
		case 6:
			err = os.Truncate(path, 0)
		case 7: // what makes an unnamed session an agent's
			err = os.MkdirAll(beside(c, one, ".records"), 0o700)
		case 8:
			err = os.Remove(beside(c, one, ".records"))
		case 9:
			header := fmt.Sprintf("{\"type\":\"session\",\"version\":1,\"session_id\":%q,\"created_at\":\"2026-01-02T03:04:05Z\"}\n", one)
			_ = os.Remove(path)
			write(t, path, header)
		case 10:
			_ = os.Remove(path)
			err = os.Symlink(c.Path(other), path)
		}
		_ = err // what was not there is as it was
		if r.IntN(3) > 0 {
			sameList(t, c, home, fmt.Sprint("step ", step, ", ", what, " ", one, " ", other))
		}
	}
	// The directory itself goes, and another comes.
	dir := c.Dir("a")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	sameList(t, c, home, "the directory is away")
	save(t, c, "b", 1, transcript.Settings{})
	sameList(t, c, home, "another directory")
	if err := os.Rename(dir, dir+".other"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	sameList(t, c, home, "the first directory again")
}

// More changes than the system keeps are as good as one.
func TestListAfterManyChanges(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	save(t, c, "a", 1, transcript.Settings{})
	save(t, c, "b", 1, transcript.Settings{})
	sameList(t, c, home, "the beginning")
	at := begun
	for range 20_000 { // the system keeps 16,384 unless it is told otherwise
		at = at.Add(time.Second)
		for _, id := range []string{"a", "b"} {
			if err := os.Chtimes(c.Path(id), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	save(t, c, "c", 1, transcript.Settings{})
	sameList(t, c, home, "many changes")
}
