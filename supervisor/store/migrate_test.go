package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/store/storetest"
)

// earlier is a directory as an earlier version left it: of a server that was closed, or killed.
func earlier(t *testing.T, end string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "earlier", end))))
	return dir
}

// said by the testdata.
var (
	earlierPast    = []string{"squeezed completed  true", "second completed yes € false", "first crashed  false", "open", "last"}
	earlierAccount = &store.Account{Parent: "p", Spent: 77, Requests: 2, Input: 7, Limits: &store.Limits{Tokens: 100, Agents: new(uint64(3))}}
)

// checkEarlier checks what is kept of the agent a, which is open: all that the earlier version had.
func checkEarlier(t *testing.T, s store.Store, r supervisor.Records) {
	t.Helper()
	var got []string
	for _, p := range past(r) {
		if p.digest != sum(p.id) {
			t.Errorf("the digest of %s is another", p.id)
		}
		if p.ended != nil {
			p.id = fmt.Sprint(p.id, " ", p.ended.Outcome, " ", p.ended.Text, " ", p.ended.Truncated)
		}
		got = append(got, p.id)
	}
	if diff := cmp.Diff(earlierPast, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	checkSleeping(t, s)
}

// checkSleeping checks what is told without opening the records.
func checkSleeping(t *testing.T, s store.Store) {
	t.Helper()
	a, err := s.Account("a")
	if diff := cmp.Diff(earlierAccount, a); err != nil || diff != "" {
		t.Errorf("the account: %v (-want +got):\n%s", err, diff)
	}
	for id, want := range map[string]supervisor.Outcome{"first": supervisor.Crashed, "second": supervisor.Completed, "open": supervisor.Crashed, "never": ""} {
		if got, err := s.Outcome("a", id); err != nil || got != want {
			t.Errorf("the outcome of %s is %q, %v, want %q", id, got, err, want)
		}
	}
	for _, after := range []uint64{0, 9, 10, 35} {
		if got := numbers(t, s, after); len(got) != 40-int(after) || got[0] != after+1 || got[len(got)-1] != 40 {
			t.Errorf("events after %d: %v", after, got)
		}
	}
}

// onlyRecords checks that nothing but the log is in a directory.
func onlyRecords(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "a.records" {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// What an earlier version kept is told as it was, without a change of a file, and is in the log
// once the records are opened or the account is set. A process may be killed within that.
func TestMigration(t *testing.T) {
	for _, end := range []string{"closed", "killed"} {
		for name, prepare := range map[string]func(dir string) error{
			"": func(string) error { return nil },
			"killed before": func(dir string) error { // the log was not whole
				begun := filepath.Join(dir, "a.records.new")
				return errors.Join(os.Mkdir(begun, 0o700), os.WriteFile(filepath.Join(begun, "00000000000000000001.jsonl"), []byte(`{"records":1`), 0o600),
					os.WriteFile(filepath.Join(begun, "00000000000000000009.jsonl.new"), []byte("{}"), 0o600))
			},
			"the account first": func(dir string) error {
				s := open(dir)
				defer s.Close()
				return s.SetAccount("a", earlierAccount)
			},
			"renamed": func(dir string) error {
				s := open(dir)
				defer s.Close()
				return errors.Join(s.Rename("a", "b"), s.Rename("b", "a"))
			},
			"killed after": func(dir string) error { // the parts were not removed, and count for nothing
				s := open(dir)
				defer s.Close()
				parts := filepath.Join("testdata", "earlier", end)
				err := errors.Join(s.SetAccount("a", earlierAccount), os.CopyFS(dir, os.DirFS(parts)))
				return errors.Join(err, os.WriteFile(filepath.Join(dir, "a.usage"), []byte(`{"spent_tokens":1}`), 0o600))
			},
		} {
			t.Run(end+" "+name, func(t *testing.T) {
				dir := earlier(t, end)
				s := open(dir)
				defer s.Close()
				if name == "" {
					before := tree(t, dir)
					checkSleeping(t, s)
					if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
						t.Errorf("reading changes files: %s", diff)
					}
				}
				must(t, prepare(dir))
				r, err := s.Open("a", false)
				must(t, err)
				onlyRecords(t, dir)
				checkEarlier(t, s, r)
				last := r.Last()
				if end == "closed" && last != 40 || end == "killed" && last <= 40 {
					t.Errorf("goes on after %d", last)
				}
				r.Append(note(last+1, 10))
				r.End(completed("open", "late"))
				must(t, r.Close())
				if got := numbers(t, s, 39); !slices.Equal(got, []uint64{40, last + 1}) {
					t.Errorf("then there are %v", got)
				}
				if got, err := s.Outcome("a", "open"); got != supervisor.Completed || err != nil {
					t.Errorf("then it has ended as %q, %v", got, err)
				}
				must(t, s.Delete("a"))
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("deleted, there is %v", left)
				}
			})
		}
	}
}

// tree is what is in a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			files[path] = string(data)
		}
		return err
	})
	must(t, err)
	return files
}

// What was damaged before costs what it did: outcomes from there on, a segment without a header, and,
// where limits may be lost, the start of the agent.
func TestMigrationOfDamage(t *testing.T) {
	dir := earlier(t, "killed")
	path := filepath.Join(dir, "a.outcomes")
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.Replace(data, []byte(`{"type":"accepted","request_id":"last"`), []byte(`{"type":"accepted,"request_id":"last"`), 1), 0o600))
	must(t, os.Truncate(filepath.Join(dir, "a.events", "00000000000000000031.jsonl"), 0))
	s := open(dir)
	defer s.Close()
	usage := filepath.Join(dir, "a.usage")
	sound, err := os.ReadFile(usage)
	must(t, err)
	must(t, os.WriteFile(usage, sound[:20], 0o600))
	if _, err := s.Open("a", false); !isDamaged(err) || !strings.Contains(err.Error(), usage) {
		t.Errorf("Open = %v", err)
	}
	must(t, os.WriteFile(usage, sound, 0o600))
	r, err := s.Open("a", false)
	must(t, err)
	defer r.Close()
	var ids []string
	for _, p := range past(r) {
		ids = append(ids, p.id)
	}
	if want := []string{"squeezed", "first", "second", "open"}; !slices.Equal(ids, want) {
		t.Errorf("left are %v, want %v", ids, want)
	}
	if left, err := os.ReadFile(path + ".damaged"); err != nil || len(left) != len(data)-1 {
		t.Errorf("the copy has %d bytes, %v", len(left), err)
	}
	if got := numbers(t, s, 0); len(got) != 30 || r.Last() < 30+1<<20 {
		t.Errorf("events %v, and it goes on after %d", got, r.Last())
	}

	// Things that are no files of ours are set aside.
	dir = earlier(t, "closed")
	must(t, errors.Join(os.Remove(filepath.Join(dir, "a.outcomes")), os.Mkdir(filepath.Join(dir, "a.outcomes"), 0o700),
		os.RemoveAll(filepath.Join(dir, "a.events")), os.WriteFile(filepath.Join(dir, "a.events"), nil, 0o600)))
	other := records(t, dir)
	if len(past(other)) > 0 || other.Last() > 0 {
		t.Errorf("of nothing, %v is left", other.Last())
	}
	for _, part := range []string{"a.outcomes.damaged", "a.events.damaged"} {
		if _, err := os.Lstat(filepath.Join(dir, part)); err != nil {
			t.Error(err)
		}
	}
}

// migrateOnAndOn opens records that an earlier version wrote, again and again, until it is killed.
func migrateOnAndOn(dir, life string) error {
	for n := 0; ; n++ {
		place := filepath.Join(dir, fmt.Sprint(life, "-", n))
		if err := os.CopyFS(place, os.DirFS(filepath.Join("testdata", "earlier", "killed"))); err != nil {
			return err
		}
		fmt.Println(place)
		s := open(place)
		r, err := s.Open("a", false)
		if err != nil {
			return err
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
}

// A migration within which its process was killed loses nothing, and is finished by the next one.
func TestKilledInAMigration(t *testing.T) {
	dir := t.TempDir()
	for life := range 5 {
		told := storetest.Kill(t, "migrate", dir, life, 8)
		place := told[len(told)-1]
		s := open(place)
		checkSleeping(t, s)
		r, err := s.Open("a", false)
		must(t, err)
		onlyRecords(t, place)
		checkEarlier(t, s, r)
		must(t, r.Close())
		s.Close()
	}
}
