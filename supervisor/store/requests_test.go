package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// What was told once is told again, to the letter, by another server.
func TestEveryOutcomeComesBack(t *testing.T) {
	model := "m"
	usage := protocol.TurnUsage{InputTokens: 1 << 60, OutputTokens: 2, CacheCreation5m: new(uint64(3)), Model: &model}
	dead := &supervisor.Exit{Code: -1, Signal: "killed", Stderr: "last \xff words\n"}
	tests := []struct {
		name string
		r    supervisor.Result
		is   []error
	}{
		{"an answer", supervisor.Result{Outcome: supervisor.Completed, Text: "4 \u2028 \x00 €", StopReason: "completed", Usage: usage, Incarnation: 7}, nil},
		{"no text", supervisor.Result{Outcome: supervisor.Completed, StopReason: "max_iterations", Truncated: true}, nil},
		{"cancelled", supervisor.Result{Outcome: supervisor.Cancelled, Text: "half", Err: supervisor.ErrAborted}, []error{supervisor.ErrAborted}},
		{"stopped", supervisor.Result{Outcome: supervisor.Cancelled, Err: fmt.Errorf("%w: %w", supervisor.ErrAborted, supervisor.ErrDraining)}, []error{supervisor.ErrAborted, supervisor.ErrDraining}},
		{"timed out", supervisor.Result{Outcome: supervisor.TimedOut, Err: supervisor.ErrTurnTimeout}, []error{supervisor.ErrTurnTimeout}},
		{"over the agent's limit", supervisor.Result{Outcome: supervisor.TimedOut, Err: &supervisor.TurnLimitError{TurnTime: time.Minute}}, []error{supervisor.ErrTurnTimeout}},
		{"failed", supervisor.Result{Outcome: supervisor.Erred, Err: &supervisor.ChildError{Command: "prompt", Message: "no \"key\""}}, nil},
		{"crashed", supervisor.Result{Outcome: supervisor.Crashed, Err: &supervisor.CrashError{Incarnation: 3, Cause: "process ended", Exit: dead}}, nil},
		{"not restarted", supervisor.Result{Outcome: supervisor.Crashed, Err: &supervisor.CrashError{Incarnation: 4, Cause: "not ready in 10s"}}, nil},
		{"not started", supervisor.Result{Outcome: supervisor.Erred, Err: &supervisor.StartError{Err: context.DeadlineExceeded, Exit: dead}}, []error{context.DeadlineExceeded}},
		{"too large", supervisor.Result{Outcome: supervisor.Erred, Err: &supervisor.CommandError{Command: "prompt", Err: errors.New("frame too large")}}, nil},
		{"something else", supervisor.Result{Outcome: supervisor.Erred, Err: errors.New("strange")}, nil},
	}
	dir := filepath.Join(t.TempDir(), "sessions")
	l := records(t, dir)
	for _, tt := range tests {
		must(t, l.Accept(tt.name, sum(tt.name)))
		tt.r.TurnID = tt.name
		l.End(tt.r)
	}
	must(t, l.Close())
	for path, want := range map[string]fs.FileMode{filepath.Join(dir, "a.records"): 0o700, segment(dir, 1): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	l = records(t, dir)
	got := past(l)
	if len(got) != len(tests) || len(past(l)) != 0 {
		t.Fatalf("%d records came back, then %d", len(got), len(past(l)))
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, was := tt.r, *got[i].ended
			want.TurnID = tt.name
			if got[i].id != tt.name || got[i].digest != sum(tt.name) {
				t.Errorf("record of %q", got[i].id)
			}
			text := func(err error) string { return strings.ToValidUTF8(fmt.Sprintf("%T %v", err, err), "\uFFFD") }
			typed := strings.HasPrefix(text(want.Err), "*supervisor.")
			if typed && text(was.Err) != text(want.Err) || !typed && fmt.Sprint(was.Err) != fmt.Sprint(want.Err) {
				t.Errorf("error %T %v, want %T %v", was.Err, was.Err, want.Err, want.Err)
			}
			if e, ok := errors.AsType[*supervisor.CrashError](want.Err); ok {
				again, _ := errors.AsType[*supervisor.CrashError](was.Err)
				if (e.Exit == nil) != (again.Exit == nil) || e.Exit != nil && again.Exit.Stderr != strings.ToValidUTF8(e.Exit.Stderr, "\uFFFD") {
					t.Errorf("exit %+v, want %+v", again.Exit, e.Exit)
				}
			}
			for _, is := range tt.is {
				if !errors.Is(was.Err, is) {
					t.Errorf("%v is not %v any more", was.Err, is)
				}
			}
			want.Err, was.Err = nil, nil
			if diff := cmp.Diff(want, was); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A prompt without an outcome is told as such, once and as often as it is asked
// for until it has one.
func TestWhatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	l := records(t, dir)
	for _, id := range []string{"c", "a", "b", "a"} {
		must(t, l.Accept(id, sum(id)))
	}
	l.End(completed("a", "yes"))
	l.End(completed("nobody", "asked"))
	for range 2 {
		must(t, l.Close())
		l = records(t, dir)
		var got []string
		for _, r := range past(l) {
			got = append(got, fmt.Sprintf("%s %v", r.id, r.ended != nil))
		}
		if diff := cmp.Diff([]string{"a true", "c false", "b false"}, got); diff != "" {
			t.Error(diff)
		}
	}
	l.End(supervisor.Result{TurnID: "c", Outcome: supervisor.Crashed, Err: errors.New("cut off")})
	l.End(completed("c", "a second outcome"))
	must(t, l.Close())
	got := past(records(t, dir))
	if len(got) != 3 || got[1].id != "c" || got[1].ended.Outcome != supervisor.Crashed {
		t.Errorf("got %+v", got)
	}
}

// Whatever is recorded, the files have their bound, the last outcomes and what waits are kept, and one
// server at a time has the agent, also after a segment was begun.
func TestTheLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := records(t, dir)
	must(t, l.Accept("waits", sum("waits")))
	const shortened = 64<<10 - 3
	long := strings.Repeat("€", 64<<10/3+10)
	n := uint64(0)
	check := func(prefix string, turns int, text string) {
		t.Helper()
		for i := range turns {
			id := fmt.Sprintf("%s-%d", prefix, i)
			must(t, l.Accept(id, sum(id)))
			n++
			l.Append(note(n, 20_000))
			l.End(completed(id, text))
			if i%50 == 0 {
				if _, err := open(dir).Open("a", false); !errors.Is(err, store.ErrInUse) {
					t.Fatalf("opened twice: %v", err)
				}
			}
		}
		must(t, l.Close())
		entries, err := os.ReadDir(filepath.Join(dir, "a.records"))
		must(t, err)
		for _, entry := range entries {
			if info, err := entry.Info(); err != nil || info.Size() > 4<<20 {
				t.Errorf("%s: %s has %d bytes, %v", prefix, entry.Name(), info.Size(), err)
			}
		}
		if len(entries) != 4 {
			t.Errorf("%s: %d segments", prefix, len(entries))
		}
		l = records(t, dir)
		got := past(l)
		if len(got) < 257 {
			t.Fatalf("%s: %d records", prefix, len(got))
		}
		last := got[len(got)-2]
		if last.id != fmt.Sprintf("%s-%d", prefix, turns-1) || got[len(got)-1].id != "waits" {
			t.Errorf("%s: the last ones are %s and %s", prefix, last.id, got[len(got)-1].id)
		}
		if kept := last.ended; !strings.HasPrefix(text, kept.Text) || !utf8.ValidString(kept.Text) ||
			kept.Truncated != (len(text) > 64<<10) || len(kept.Text) < min(len(text), shortened) {
			t.Errorf("%s: %d bytes of text, truncated %v", prefix, len(kept.Text), kept.Truncated)
		}
		if l.Last() != n {
			t.Errorf("%s: goes on after %d, want %d", prefix, l.Last(), n)
		}
	}
	check("short", 1000, "yes")
	check("long", 260, long)
	texts := 0
	for _, r := range past(records(t, dir, l)) {
		if r.ended != nil {
			texts += len(r.ended.Text)
		}
	}
	if texts > 1<<20+4<<20 {
		t.Errorf("%d bytes of text", texts)
	}
}

// Where the last outcomes are more than a segment, not every line begins one.
func TestLargeSnapshots(t *testing.T) {
	dir := t.TempDir()
	s := small(dir)
	defer s.Close()
	r, err := s.Open("a", false)
	must(t, err)
	defer r.Close()
	turns := func(n int) (number int) {
		for i := range n {
			id := fmt.Sprint(n, "-", i)
			must(t, r.Accept(id, sum(id)))
			r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Erred, Err: errors.New(strings.Repeat("e", 1<<10))})
		}
		entries, err := os.ReadDir(filepath.Join(dir, "a.records"))
		must(t, err)
		number, err = strconv.Atoi(strings.TrimSuffix(entries[len(entries)-1].Name(), ".jsonl"))
		must(t, err)
		return number
	}
	if before, after := turns(256), turns(64); after > before+64/8 {
		t.Errorf("%d segments were begun for 64 turns", after-before)
	}
}

// An id that was forgotten is a new one; after Close nothing is recorded.
func TestForgottenIDs(t *testing.T) {
	dir := t.TempDir()
	l := records(t, dir)
	for _, text := range []string{"old", "new"} {
		must(t, l.Accept("id", sum(text)))
		l.End(completed("id", text))
	}
	must(t, l.Close())
	must(t, l.Close())
	if err := l.Accept("late", sum("")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Accept after Close = %v", err)
	}
	l.End(completed("late", ""))
	l = records(t, dir)
	got := past(l)
	if r := got[len(got)-1]; len(got) != 2 || r.digest != sum("new") || r.ended.Text != "new" {
		t.Errorf("got %+v", got)
	}
	must(t, l.Remove())
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("after Remove there is %v", left)
	}
}

func TestALaterVersionIsRefused(t *testing.T) {
	for name, text := range map[string]string{"a.outcomes": `{"type":"outcomes","version":7}` + "\n", "a.records/" + filepath.Base(segment("", 1)): `{"records":7,"since":"x"}` + "\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
		s := open(dir)
		defer s.Close()
		_, opened := s.Open("a", false)
		_, outcome := s.Outcome("a", "1")
		errs := []error{opened, outcome}
		if name != "a.outcomes" {
			_, account := s.Account("a")
			errs = append(errs, account, s.SetAccount("a", &store.Account{}), s.SetAccount("a", nil))
		}
		for _, err := range errs {
			if _, damaged := errors.AsType[*store.DamagedError](err); damaged || err == nil || !strings.Contains(err.Error(), "layout version 7; this program reads up to 1") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left, _ := os.ReadFile(path); string(left) != text {
			t.Error("the file was changed")
		}
	}
}

// The lines that each turn writes by hand are those of the general encoder, with all members but
// an error, with an error, with none, and with what is not UTF-8.
func TestLinesByHand(t *testing.T) {
	model := "m"
	whole := supervisor.Result{
		Outcome: supervisor.Completed, StopReason: "completed", Incarnation: 2, Attempt: 3, Ran: time.Second, Truncated: true, Text: "a\"\u2028\n<€",
		Usage: protocol.TurnUsage{InputTokens: 4, CacheCreation1h: new(uint64(5)), Estimated: true, Model: &model},
	}
	failed, foreign := whole, whole
	failed.Err, foreign.Text = supervisor.ErrAborted, "\xff"
	for i, r := range []supervisor.Result{whole, failed, foreign, {}} {
		lines, general, empty := store.LinesOf("id\n", r)
		if diff := cmp.Diff(string(general), string(lines)); diff != "" {
			t.Errorf("(-general +by hand):\n%s", diff)
		}
		if i == 0 && empty != 1 {
			t.Errorf("%d members are empty, want 1", empty)
		}
	}
	if lines, general, _ := store.LinesOf("\xff", whole); string(lines) != string(general) {
		t.Errorf("got %s, want %s", lines, general)
	}
}

// A prompt that was withdrawn was never there: it is accepted as another one.
func TestWithdrawn(t *testing.T) {
	dir := t.TempDir()
	s := open(dir)
	r, err := s.Open("a", false)
	must(t, err)
	must(t, r.Accept("one", sum("one")))
	r.End(supervisor.Result{TurnID: "one", Outcome: store.Withdrawn})
	must(t, r.Accept("two", sum("two")))
	must(t, r.Close())
	if got, err := s.Outcome("a", "one"); got != "" || err != nil {
		t.Errorf("its outcome is %q, %v", got, err)
	}
	r, err = s.Open("a", false)
	must(t, err)
	for _, p := range past(r) {
		if p.id != "two" {
			t.Errorf("of %q is told", p.id)
		}
	}
	must(t, r.Accept("one", sum("another")))
	must(t, r.Close())
	s.Close()
}
