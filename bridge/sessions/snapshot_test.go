package sessions_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// taken takes a snapshot of what c has, by path.
func taken(t *testing.T, c *sessions.Catalogue) (files map[string]string, count int) {
	t.Helper()
	files = map[string]string{}
	count, err := c.Snapshot(func(f sessions.File) error {
		data := make([]byte, f.Size)
		if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		files[f.Path] = string(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, count
}

func TestSnapshot(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	save(t, c, "a", 1, transcript.Settings{})
	saveParts(t, c, "a", "of a")
	saveParts(t, c, "lost", "of no session")
	save(t, c, ".last", 1, transcript.Settings{})
	save(t, c, ".other", 1, transcript.Settings{})
	if err := c.SetLast(".last"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.Path("a"), c.Path("link")); err != nil {
		t.Fatal(err)
	}
	files, count := taken(t, c)
	var got []string
	for path := range files {
		got = append(got, path)
	}
	slices.Sort(got)
	want := []string{"run/last", "run/temp/.last.jsonl", "sessions/a.jsonl"}
	for _, dir := range []string{"records", "files"} {
		names, err := filepath.Glob(filepath.Join(home, "sessions", "a."+dir, "*"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%v, %v", names, err)
		}
		for _, name := range names {
			want = append(want, "sessions/a."+dir+"/"+filepath.Base(name))
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || count != 2 {
		t.Errorf("%d sessions (-want +got):\n%s", count, diff)
	}
	if files["run/last"] != ".last\n" {
		t.Errorf("got %q", files)
	}
}

// Sessions may be changed while a snapshot is written, however long that takes: one
// that gets another name is in it once, under either. A backup that hangs holds up
// no server, and not its end either.
func TestSnapshotDuringChanges(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	for _, id := range []string{"a", "b", "c", "d"} {
		save(t, c, id, 1, transcript.Settings{})
	}
	changed := false
	var got []string
	count, err := c.Snapshot(func(f sessions.File) error {
		if !changed {
			changed = true
			other := sessions.New(home, nil) // of another process
			if err := errors.Join(other.Rename("a", "y"), other.Rename("b", "z"), other.Delete("c"), sessions.Tidy(home)); err != nil {
				return err
			}
		}
		got = append(got, f.Path)
		return nil
	})
	slices.Sort(got)
	want := []string{"sessions/a.jsonl", "sessions/d.jsonl", "sessions/z.jsonl"}
	if diff := cmp.Diff(want, got); diff != "" || count != 3 || err != nil {
		t.Errorf("%d sessions, %v (-want +got):\n%s", count, err, diff)
	}
}

// A session that gets another name again and again is in a snapshot all the same; one that gets
// the name of another one, which is in it already, makes it one that has to be taken again.
func TestSnapshotOfRenamed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *sessions.Catalogue) error // once the first session was taken
		want   string
		err    error
	}{
		{"there and back", func(c *sessions.Catalogue) error { return errors.Join(c.Rename("b", "z"), c.Rename("z", "b")) }, "a b c", nil},
		{"under a name that was looked at", func(c *sessions.Catalogue) error { return errors.Join(c.Rename("b", "z"), c.Rename("c", "b")) }, "a b z", nil},
		{"by a circle", func(c *sessions.Catalogue) error {
			return errors.Join(c.Rename("b", "z"), c.Rename("c", "b"), c.Rename("z", "c"))
		}, "a b c", nil},
		{"in the place of one that was taken", func(c *sessions.Catalogue) error { return errors.Join(c.Delete("a"), c.Rename("c", "a")) }, "", sessions.ErrReplaced},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			c, other := sessions.New(home, nil), sessions.New(home, nil)
			for i, id := range []string{"a", "b", "c"} {
				save(t, c, id, i+1, transcript.Settings{})
			}
			var got []string
			var once sync.Once
			count, err := c.Snapshot(func(f sessions.File) (err error) {
				once.Do(func() { err = tt.change(other) })
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(f.Path, "sessions/"), ".jsonl"))
				return err
			})
			slices.Sort(got)
			if !errors.Is(err, tt.err) || err == nil && (strings.Join(got, " ") != tt.want || count != 3) {
				t.Errorf("%v, %d sessions: %q, want %s", err, count, got, tt.want)
			}
		})
	}
}

// A snapshot that is taken while an agent works has, as after a kill, each turn
// that ended, and no prompt that its outcomes do not know.
func TestSnapshotOfWork(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	save(t, c, "a", 0, transcript.Settings{})
	session, err := os.OpenFile(c.Path("a"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	s := kept(c)
	defer s.Close()
	r, err := s.Open("a", true)
	if err != nil {
		t.Fatal(err)
	}
	work, worked := make(chan int), make(chan error)
	go func() {
		for i := range work {
			began := r.Accept(fmt.Sprint(i), [32]byte{})
			_, said := fmt.Fprintf(session, "turn %d\n", i)
			r.End(supervisor.Result{TurnID: fmt.Sprint(i), Outcome: supervisor.Completed})
			worked <- errors.Join(began, said)
		}
	}()
	for i := range 2000 {
		work <- i
		files, _ := taken(t, c)
		if err := <-worked; err != nil {
			t.Fatal(err)
		}
		session, records := files["sessions/a.jsonl"], files["sessions/a.records/00000000000000000001.jsonl"]
		turns, begun, ended := strings.Count(session, "turn"), strings.Count(records, `{"accepted":`), strings.Count(records, `{"ended":`)
		if ended > turns || turns > begun {
			t.Fatalf("%d: %d turns, of which %d were begun and %d ended", i, turns, begun, ended)
		}
	}
	close(work)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
