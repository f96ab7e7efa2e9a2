package sessions_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

func TestList(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	if _, total, err := c.List(0, 10, true); total != 0 || err != nil {
		t.Fatalf("of a new home: %d, %v", total, err)
	}
	for i, id := range []string{"old", "middle", "damaged", "new", ".1"} {
		save(t, c, id, i, transcript.Settings{Cwd: new("/site/" + id)})
		if err := os.Chtimes(c.Path(id), begun, begun.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, c.Path("damaged"), "{\"type\":\"session\",\"version\":1,\"session_id\":\"x\",\"created_at\":\"2026-01-02T03:04:05Z\"}\nnot JSON\n{}\n")
	if err := os.Chtimes(c.Path("damaged"), begun, begun.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	// None of these is a session.
	dir := filepath.Dir(c.Path("old"))
	write(t, filepath.Join(dir, "empty.jsonl"), "")
	write(t, filepath.Join(dir, "b d.jsonl"), "{}\n")
	write(t, filepath.Join(dir, ".hidden.jsonl"), "{}\n")
	saveParts(t, c, "old", "x")
	if err := errors.Join(os.Symlink(c.Path("old"), c.Path("link")), os.Mkdir(c.Path("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		offset, limit uint64
		temp          bool
		want          string
		total         uint64
	}{
		{0, 10, false, "new 3, damaged !, middle 1, old 0", 4},
		{0, 10, true, ".1 4, new 3, damaged !, middle 1, old 0", 5},
		{1, 2, false, "damaged !, middle 1", 4},
		{4, 2, false, "", 4},
		{1 << 63, 1 << 63, false, "", 4},
		{0, 0, false, "", 4},
	} {
		page, total, err := c.List(tt.offset, tt.limit, tt.temp)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range page {
			what := fmt.Sprint(e.Name, " ", e.Messages)
			if e.Damaged != nil {
				what = e.Name + " !"
				if line, ok := errors.AsType[*transcript.LineError](e.Damaged); !ok || line.Line != 2 {
					t.Errorf("%s is damaged: %v, want line 2", e.Name, e.Damaged)
				}
			} else if *e.Settings.Cwd != "/site/"+e.Name {
				t.Errorf("%s has settings %+v", e.Name, e.Settings)
			}
			got = append(got, what)
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" || total != tt.total {
			t.Errorf("%d from %d: %d in all (-want +got):\n%s", tt.limit, tt.offset, total, diff)
		}
	}
	if _, err := c.Summary("link"); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("a link was followed: %v", err)
	}
}

func TestLast(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	if got := c.Last(); got != "" {
		t.Errorf("of a new home: %q", got)
	}
	for _, id := range []string{".1", ".10", "named"} {
		save(t, c, id, 1, transcript.Settings{})
		saveParts(t, c, id, id)
	}
	if err := c.SetLast("../../x"); err == nil {
		t.Error("a name that leads elsewhere was taken")
	}
	if err := c.SetLast(".1"); err != nil {
		t.Fatal(err)
	}
	// The end of a server, or the start after one that was killed.
	if err := sessions.Tidy(home); err != nil {
		t.Fatal(err)
	}
	if got := c.Last(); got != ".1" {
		t.Errorf("the last is %q", got)
	}
	for id, want := range map[string][]string{".1": {".1", ".1", ".1", ".1"}, ".10": {"-", "-", "-", "-"}, "named": {"named", "named", "named", "named"}} {
		if diff := cmp.Diff(want, there(t, c, id)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	if err := c.Delete(".1"); err != nil || c.Last() != "" {
		t.Errorf("a last one that is gone: %q, %v", c.Last(), err)
	}
}

// What was read once is read again when it was written to, also where its length
// stays the same.
func TestSummaryIsOfNow(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	for i, want := range []uint64{1, 2, 2, 5} {
		save(t, c, "a", int(want), transcript.Settings{Cwd: new(fmt.Sprint("/site/", i))})
		if err := os.Chtimes(c.Path("a"), begun, begun.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := c.Summary("a")
			if err != nil || got.Messages != want || *got.Settings.Cwd != fmt.Sprint("/site/", i) {
				t.Errorf("%d: %d messages in %s, %v", i, got.Messages, *got.Settings.Cwd, err)
			}
		}
	}
	write(t, c.Path("a"), "damaged\n")
	for range 2 {
		if _, err := c.Summary("a"); !errors.Is(err, transcript.ErrNoSession) {
			t.Errorf("got %v, want that it is no session", err)
		}
	}
}

// A conversation that a child without a session's name began is listed with the
// temporary ones, as it is removed some time; one that an agent of the server went on
// with, or has another name by now, with all others.
func TestListOfUnnamed(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	ids := []string{
		"0a8f9c1e-0000-4000-8000-00000000000a", "0a8f9c1e-0000-4000-8000-00000000000b",
		"0a8f9c1e-0000-4000-8000-00000000000c", "0a8f9c1e-0000-4000-8000-00000000000d",
	}
	for i, id := range ids {
		sessionID := id
		if i == 2 {
			sessionID = "another" // an agent's name may look like an id
		}
		header, err := transcript.Append(nil, transcript.Header{Version: 1, SessionID: sessionID, Name: id, CreatedAt: begun})
		if err != nil {
			t.Fatal(err)
		}
		write(t, c.Path(id), string(header)+"\n")
		if err := os.Chtimes(c.Path(id), begun, begun.Add(time.Duration(-i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, strings.TrimSuffix(c.Path(ids[0]), ".jsonl")+".files/image", "x")
	write(t, beside(c, ids[1], ".records/x"), "x")
	list := func(temp bool) (got []string) {
		page, _, err := c.List(0, 10, temp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			got = append(got, fmt.Sprint(e.Name[35:], e.Temp))
		}
		return got
	}
	for range 2 { // what was read once is known
		if diff := cmp.Diff([]string{"bfalse", "cfalse"}, list(false)); diff != "" {
			t.Errorf("without temporary ones (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"atrue", "bfalse", "cfalse", "dtrue"}, list(true)); diff != "" {
			t.Errorf("with them (-want +got):\n%s", diff)
		}
	}
	if err := c.Clone(ids[0], "copy"); err != nil {
		t.Fatal(err)
	}
	if err := c.Rename(ids[3], "kept"); err != nil {
		t.Fatal(err)
	}
	if page, total, err := c.List(0, 10, false); err != nil || total != 4 {
		t.Errorf("after a copy and a rename: %v, %v", page, err)
	}
}

// While a long session is read, what else the server does has its turn again and again.
func TestLongSessionIsReadWithPauses(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	save(t, c, "short", 1, transcript.Settings{})
	saveParts(t, c, "short", "x")
	save(t, c, "long", 1, transcript.Settings{})
	f, err := os.OpenFile(c.Path("long"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	line := `{"type":"message","role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}` + "\n"
	for range 8 {
		fmt.Fprint(f, line)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for name, paused := range map[string]bool{"short": false, "long": true} {
			began := time.Now()
			if s, err := c.Summary(name); err != nil || s.Messages == 0 {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
			if got := time.Since(began) > 0; got != paused {
				t.Errorf("%s: paused %t", name, got)
			}
		}
	})
}
