package requests_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/requests"
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
	path := filepath.Join(t.TempDir(), "sessions", "alice.outcomes")
	l := open(t, path, requests.Options{})
	for _, tt := range tests {
		must(t, l.Accept(tt.name, sum(tt.name)))
		tt.r.TurnID = tt.name
		l.End(tt.r)
	}
	must(t, l.Close())
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	l = open(t, path, requests.Options{})
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
	path := filepath.Join(t.TempDir(), "a")
	l := open(t, path, requests.Options{})
	for _, id := range []string{"c", "a", "b", "a"} {
		must(t, l.Accept(id, sum(id)))
	}
	l.End(completed("a", "yes"))
	l.End(completed("nobody", "asked"))
	for range 2 {
		must(t, l.Close())
		l = open(t, path, requests.Options{})
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
	got := past(open(t, path, requests.Options{}))
	if len(got) != 3 || got[1].id != "c" || got[1].ended.Outcome != supervisor.Crashed {
		t.Errorf("got %+v", got)
	}
}

func TestTheFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	l := open(t, path, requests.Options{})
	must(t, l.Accept("waits", sum("waits")))
	long := strings.Repeat("€", requests.MaxText/3+10)
	largest, last := int64(0), 0
	check := func(prefix string, n int, text string) {
		for i := range n {
			id := fmt.Sprintf("%s-%d", prefix, i)
			must(t, l.Accept(id, sum(id)))
			l.End(completed(id, text))
			info, err := os.Stat(path)
			must(t, err)
			largest = max(largest, info.Size())
		}
		last = n - 1
		must(t, l.Close())
		l = open(t, path, requests.Options{})
		got := past(l)
		if len(got) != requests.MaxOutcomes+1 {
			t.Fatalf("%s: %d records", prefix, len(got))
		}
		if end := got[len(got)-2]; end.id != fmt.Sprintf("%s-%d", prefix, last) || end.ended == nil {
			t.Errorf("%s: the last one is %s", prefix, end.id)
		}
		if got[len(got)-1].id != "waits" {
			t.Error("what waits is forgotten")
		}
		if kept := got[len(got)-2].ended; !strings.HasPrefix(text, kept.Text) || !utf8.ValidString(kept.Text) ||
			kept.Truncated != (len(text) > requests.MaxText) || len(kept.Text) < min(len(text), requests.MaxText-3) {
			t.Errorf("%s: %d bytes of text, truncated %v", prefix, len(kept.Text), kept.Truncated)
		}
	}
	check("short", 2000, "yes")
	if largest > 1<<20 {
		t.Errorf("short answers: the file had %d bytes", largest)
	}
	check("long", 300, long)
	if largest > requests.MaxTexts+requests.MaxGrowth+1<<20 {
		t.Errorf("long answers: the file had %d bytes", largest)
	}
	// An id that is forgotten is a new one.
	must(t, l.Accept("short-0", sum("other")))
	l.End(completed("short-0", "new"))
	must(t, l.Close())
	got := past(open(t, path, requests.Options{}))
	if r := got[len(got)-2]; r.id != "short-0" || r.digest != sum("other") || r.ended.Text != "new" {
		t.Errorf("got %+v", r)
	}
}

// One server at a time has an agent, also after its file was written anew.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	l := open(t, path, requests.Options{})
	for i := range requests.MaxOutcomes + 10 {
		if i%100 == 0 || i > requests.MaxOutcomes {
			if _, err := requests.Open(path, requests.Options{}); !errors.Is(err, requests.ErrInUse) {
				t.Fatalf("a second Open after %d: %v", i, err)
			}
		}
		id := fmt.Sprint(i)
		must(t, l.Accept(id, sum(id)))
		l.End(completed(id, ""))
	}
	must(t, l.Close())
	must(t, l.Close())
	if err := l.Accept("late", sum("")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Accept after Close = %v", err)
	}
	l.End(completed("late", ""))
	l = open(t, path, requests.Options{})
	must(t, l.Remove())
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("after Remove there is %v", left)
	}
	if got := past(open(t, path, requests.Options{})); len(got) != 0 {
		t.Errorf("after Remove: %v", got)
	}
}

// A process may be killed at any byte of a write, and a machine may leave
// anything behind the end.
func TestEveryTornTailIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	l := open(t, path, requests.Options{})
	must(t, l.Accept("1", sum("1")))
	must(t, l.Close())
	sound, err := os.ReadFile(path)
	must(t, err)
	l = open(t, path, requests.Options{})
	l.End(completed("1", "yes"))
	must(t, l.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := len(sound); n < len(whole); n++ {
		for _, tail := range []string{"", "\x00\x00\x00", "{\n", "\n"} {
			must(t, os.WriteFile(path, append(whole[:n:n], tail...), 0o600))
			l := open(t, path, requests.Options{})
			got := past(l)
			cut := n < len(whole)-1 || tail != "\n"
			if len(got) != 1 || (got[0].ended == nil) != cut {
				t.Fatalf("torn after %d bytes, then %q: %+v", n, tail, got)
			}
			l.End(completed("1", "again"))
			must(t, l.Close())
			if got := past(open(t, path, requests.Options{})); got[0].ended == nil {
				t.Fatalf("torn after %d bytes, then %q: nothing can be added", n, tail)
			}
			must(t, os.Remove(path))
		}
	}
}

func TestALaterVersionIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	data := []byte(`{"type":"outcomes","version":7}` + "\n")
	must(t, os.WriteFile(path, data, 0o600))
	_, err := requests.Open(path, requests.Options{})
	if e, ok := errors.AsType[*requests.VersionError](err); !ok || e.Got != 7 {
		t.Errorf("Open = %v", err)
	}
	if left, _ := os.ReadFile(path); string(left) != string(data) {
		t.Error("the file was changed")
	}
}

func BenchmarkAcceptAndEnd(b *testing.B) {
	l := open(b, filepath.Join(b.TempDir(), "a"), requests.Options{})
	text := strings.Repeat("x", 200)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		id := fmt.Sprint("0b0e9ad1-3ab4-4a5f-9cfe-", n)
		if err := l.Accept(id, sum("")); err != nil {
			b.Fatal(err)
		}
		l.End(completed(id, text))
	}
}
