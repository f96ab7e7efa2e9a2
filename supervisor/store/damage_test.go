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

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// worked is a log of one segment of a server that was closed, or else killed: five turns, each with an event
// and an account that says how many ended, and a sixth that waits.
func worked(t *testing.T, closed bool) (dir string, whole []byte) {
	t.Helper()
	dir = t.TempDir()
	s := open(dir)
	defer s.Close()
	must(t, s.SetAccount("a", &store.Account{}))
	r, err := s.Open("a", false)
	must(t, err)
	for n := range uint64(6) {
		id := fmt.Sprint(n + 1)
		r.Append(note(n+1, 10))
		must(t, r.Accept(id, sum(id)))
		if n < 5 {
			r.End(completed(id, "yes"))
			must(t, s.SetAccount("a", &store.Account{Spent: n + 1}))
		}
	}
	if closed {
		must(t, r.Close())
	}
	whole, err = os.ReadFile(segment(dir, 1))
	must(t, err)
	if !closed {
		must(t, r.Close())
	}
	return dir, whole
}

// told is what is told of worked: the account as it is told before and after the records are opened,
// how many requests ended, how many wait, and the events.
type told struct {
	err            error // of one or the other
	spent          uint64
	ended, waiting int
	events         []uint64
	last           uint64
}

// tell puts data into the segment and reads it.
func tell(t *testing.T, dir string, data []byte) (is told) {
	t.Helper()
	must(t, errors.Join(os.RemoveAll(filepath.Dir(segment(dir, 1))), os.MkdirAll(filepath.Dir(segment(dir, 1)), 0o700), os.WriteFile(segment(dir, 1), data, 0o600)))
	s := open(dir)
	defer s.Close()
	a, err := s.Account("a")
	r, failed := s.Open("a", false)
	if err != nil || failed != nil {
		if !isDamaged(err) && !isDamaged(failed) {
			t.Errorf("Account = %v, Open = %v", err, failed)
		}
		if failed == nil {
			must(t, r.Close())
		}
		return told{err: errors.Join(err, failed)}
	}
	defer func() { must(t, r.Close()) }()
	if data, err := os.ReadFile(segment(dir, 1)); err != nil || data[len(data)-1] != '\n' {
		t.Errorf("opened, it ends with %q, %v", data[len(data)-10:], err)
	}
	for _, p := range past(r) {
		if p.ended != nil {
			is.ended++
		} else {
			is.waiting++
		}
	}
	again, err := s.Account("a")
	must(t, err)
	if a != nil {
		is.spent = a.Spent
	}
	if again != nil && again.Spent != is.spent {
		t.Errorf("%d is spent, and then %d", is.spent, again.Spent)
	}
	is.last = r.Last()
	r.Append(note(r.Last()+1, 1))
	must(t, r.Accept("next", sum("next")))
	if still, err := open(dir).Account("a"); err != nil || (still == nil) != (a == nil) || a != nil && *still != *a {
		t.Errorf("%+v is spent, and after a line more %+v, %v", a, still, err)
	}
	for e, err := range s.Events("a", 0) {
		must(t, err)
		is.events = append(is.events, e.Seq)
	}
	is.events = is.events[:len(is.events)-1]
	return is
}

// A process may be killed at any byte of a write, a machine may leave anything behind the end, and a backup has the
// header of a later moment. All that is whole is told, and the log goes on.
func TestEveryTornTail(t *testing.T) {
	dir, whole := worked(t, false)
	from := bytes.Index(whole, []byte("}\n{\"seq\":1,")) + 2
	tails := []string{"", "\x00\x00\x00", "{\n", "\n"}
	for cut := from; cut <= len(whole); cut += 1 + 2*((len(whole)-cut)/1000) { // the nearer to the end, the denser
		line := whole[:bytes.LastIndexByte(whole[:cut], '\n')+1]
		tail := tails[cut%len(tails)]
		if cut+1 < len(whole) && whole[cut] == '\n' && tail == "\n" { // it is whole
			tail = ""
		}
		got := tell(t, dir, append(whole[:cut:cut], tail...))
		want := told{
			spent: uint64(max(0, bytes.Count(line, []byte(`{"account":`))-1)),
			ended: bytes.Count(line, []byte(`{"ended":`)),
			last:  got.last,
		}
		want.waiting = bytes.Count(line, []byte(`{"accepted":`)) - want.ended
		for n := range bytes.Count(line, []byte(`{"seq":`)) {
			want.events = append(want.events, uint64(n+1))
		}
		if strings.HasSuffix(tail, "\n") && isDamaged(got.err) { // it is a whole line in the place of the account
			continue
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || got.last < 1<<20 {
			t.Fatalf("cut off after %d bytes, then %q: got %+v, want %+v", cut, tail, got, want)
		}
	}
}

// The account of an agent that does not run is set behind what a kill left, and holds.
func TestAccountBehindATornTail(t *testing.T) {
	for _, tail := range []string{"", `{"acc`, "\x00\x00", `{"account":{"spent_tokens":1}}`} {
		dir, whole := worked(t, true)
		must(t, os.WriteFile(segment(dir, 1), append(whole, tail...), 0o600))
		s := open(dir)
		must(t, s.SetAccount("a", &store.Account{Spent: 9}))
		s.Close()
		data, err := os.ReadFile(segment(dir, 1))
		must(t, err)
		if got := tell(t, dir, data); got.spent != 9 || got.ended != 5 || got.waiting != 1 || len(got.events) != 6 || got.last != 6 {
			t.Errorf("behind %q: %+v", tail, got)
		}
	}
}

// Whatever byte of a segment is another one: no agent starts with less on its account than it had,
// and what is not damaged is told. A copy is kept of what is.
func TestDamageAtEachPlace(t *testing.T) {
	dir, whole := worked(t, true)
	refused := 0
	for at := 0; at < len(whole); at += 7 {
		if whole[at] == '\n' { // what an event says is not looked into
			continue
		}
		data := bytes.Clone(whole)
		data[at] ^= 0x15
		must(t, os.RemoveAll(filepath.Join(dir, "a.records.damaged")))
		got := tell(t, dir, data)
		if got.err != nil {
			refused++
			continue
		}
		if got.spent != 5 {
			t.Fatalf("byte %d, %q: %d is spent", at, data[at], got.spent)
		}
		if got.ended+got.waiting < 4 || len(got.events) < 4 {
			t.Fatalf("byte %d, %q: %+v is left", at, data[at], got)
		}
		line := data[bytes.LastIndexByte(data[:at], '\n')+1:]
		line, _, _ = bytes.Cut(line, []byte("\n"))
		known := !jsontext.Value(line).IsValid() // as a later version may write
		if _, err := os.Stat(filepath.Join(dir, "a.records.damaged")); known && err != nil && (got.ended != 5 || got.waiting != 1 || len(got.events) != 6) {
			t.Fatalf("byte %d, %q: %+v is left, and there is no copy", at, data[at], got)
		}
	}
	if header := 192; refused < header/14 || refused > header/2 { // the header and the account are what counts
		t.Errorf("refused %d of %d", refused, len(whole))
	}
}

// What a kill leaves within the change from one segment to the next, or a machine that stops, costs nothing.
func TestKilledInARotation(t *testing.T) {
	dir := t.TempDir()
	s := small(dir)
	defer s.Close()
	must(t, s.SetAccount("a", &store.Account{Spent: 3}))
	r, err := s.Open("a", false)
	must(t, err)
	for n := uint64(1); ; n++ {
		must(t, r.Accept(fmt.Sprint(n), sum(fmt.Sprint(n))))
		r.Append(note(n, 5000))
		if _, err := os.Stat(segment(dir, 3)); err == nil {
			break
		}
	}
	must(t, r.Close())
	want := numbers(t, s, 0)
	for name, leave := range map[string]func() error{
		"one that is not whole": func() error { return os.WriteFile(segment(dir, 4)+".new", []byte(`{"records":1,`), 0o600) },
		"one that is empty":     func() error { return os.WriteFile(segment(dir, 4), nil, 0o600) },
		"one of zeros":          func() error { return os.WriteFile(segment(dir, 4), make([]byte, 4096), 0o600) },
		"an older one":          func() error { return os.WriteFile(segment(dir, 0), []byte("{}\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, leave())
			if a, err := s.Account("a"); err != nil || a.Spent != 3 {
				t.Errorf("the account: %+v, %v", a, err)
			}
			if got := numbers(t, s, 0); !slices.Equal(got, want) {
				t.Errorf("the events: %v", got)
			}
			r, err := s.Open("a", false)
			must(t, err)
			if got := past(r); len(got) != len(want) || r.Last() != want[len(want)-1] {
				t.Errorf("%d requests, and it goes on after %d", len(got), r.Last())
			}
			must(t, r.Close())
			for _, path := range []string{segment(dir, 0), segment(dir, 4), segment(dir, 4) + ".new"} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s is left", path)
				}
			}
		})
	}
}

// Another agent of the name has nothing of the one before but the account, also where a kill left segments; nor
// has one whose name was about to be removed.
func TestKilledInARemoval(t *testing.T) {
	for name, remove := range map[string]func(s store.Store) error{
		"opened anew": func(s store.Store) error {
			r, err := s.Open("a", true)
			return errors.Join(err, r.Close())
		},
		"removed": func(s store.Store) error {
			r, err := s.Open("a", false)
			return errors.Join(err, r.Remove())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, whole := worked(t, true)
			s := open(dir)
			defer s.Close()
			must(t, remove(s))
			must(t, os.WriteFile(segment(dir, 1), whole, 0o600)) // as if it was not removed yet
			if got := numbers(t, s, 0); len(got) > 0 {
				t.Errorf("events %v", got)
			}
			r, err := s.Open("a", false)
			must(t, err)
			a, err := s.Account("a")
			if err != nil || a.Spent != 5 || r.Last() != 0 || len(past(r)) > 0 {
				t.Errorf("%+v, %v; it goes on after %d", a, err, r.Last())
			}
			must(t, r.Close())
			if entries, err := os.ReadDir(filepath.Join(dir, "a.records")); err != nil || len(entries) != 1 {
				t.Errorf("left is %v, %v", entries, err)
			}
		})
	}
	dir, _ := worked(t, true)
	s := open(dir)
	defer s.Close()
	must(t, os.Rename(filepath.Join(dir, "a.records"), filepath.Join(dir, "a.records.new")))
	r, err := s.Open("a", false)
	must(t, err)
	if a, err := s.Account("a"); err != nil || a != nil || r.Last() != 0 || len(past(r)) > 0 {
		t.Errorf("of what was removed, %+v is left, %v", a, err)
	}
	must(t, r.Close())
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "a.records.new"), 0o700), os.Mkdir(filepath.Join(dir, "a.records.damaged"), 0o700), s.Delete("a")))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
}

// What stands in the place of the log and is none keeps the agent from starting, as its limits may be lost, until
// its account is forgotten: then it is set aside, and another agent may have the name.
func TestSomethingElseInItsPlace(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a file":     func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a link":     func(path string) error { return os.Symlink(os.TempDir(), path) },
		"no segment": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to a segment": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Symlink("/dev/null", filepath.Join(path, filepath.Base(segment("", 1)))))
		},
		"a torn snapshot": func(path string) error {
			dir, _ := worked(t, true)
			s := open(dir)
			defer s.Close()
			r, err := s.Open("a", true)
			must(t, err)
			must(t, r.Close())
			return errors.Join(os.Mkdir(path, 0o700), os.CopyFS(path, os.DirFS(filepath.Join(dir, "a.records"))), os.Truncate(filepath.Join(path, filepath.Base(segment("", 2))), 230))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.records")
			must(t, put(path))
			s := open(dir)
			defer s.Close()
			_, account := s.Account("a")
			_, opened := s.Open("a", false)
			for _, err := range []error{account, opened, s.SetAccount("a", &store.Account{}), s.Clone("a", "b")} {
				if !isDamaged(err) || !strings.Contains(err.Error(), path) {
					t.Errorf("got %v", err)
				}
			}
			must(t, s.SetAccount("a", nil))
			r, err := s.Open("a", true)
			must(t, err)
			must(t, r.Accept("1", sum("1")))
			must(t, r.Close())
			if _, err := os.Lstat(path + ".damaged"); err != nil {
				t.Error(err)
			}
			if got, err := s.Outcome("a", "1"); err != nil || got != supervisor.Crashed {
				t.Errorf("the outcome: %q, %v", got, err)
			}
		})
	}
}
