package plan_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/plan"
)

// tryAgain opens the record of a run that has ended, and executes what another
// try would do; "" if there is none.
func (s *stage) tryAgain(ctx context.Context, o plan.ExecuteOptions, all bool) string {
	s.t.Helper()
	record, err := plan.Open(s.path, plan.Identity{Digest: "digest"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer record.Close()
	s.said = nil
	tasks := record.Again(o.Plan, o.StopOnFailure, all)
	if tasks == nil {
		return ""
	}
	if err := record.Reopen(tasks); err != nil {
		s.t.Fatal(err)
	}
	o.Record = record
	status, err := plan.Execute(ctx, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return status
}

// A run that a fault ended goes on with what did not succeed; what failed for
// good is only tried again if somebody says so.
func TestAgain(t *testing.T) {
	for _, tt := range []struct {
		name, tasks, faults, fails string
		stop, all                  bool
		status, want               string
	}{
		{"a fault", "a;b < a;c < b", "b", "", true, false, api.PlanCompleted, "+b.2 b:success +c.1 c:success"},
		{"a fault, and the rest went on", "a;b;c < a", "a", "", false, false, api.PlanCompleted, "+a.2 a:success +c.1 c:success"},
		{"its own work", "a;b < a", "", "a", true, false, "", ""},
		{"its own work, and a person asks", "a;b < a", "", "a", true, true, api.PlanCompleted, "+a.2 a:success +b.1 b:success"},
		{"both, and it stops at a failure", "a;b", "a", "b", true, false, api.PlanCompleted, "+a.2 a:success +b.1 b:success"},
		{"both, and it goes on", "a;b;c < b", "a", "b", false, false, api.PlanFailed, "c:skipped +a.2 a:success"},
		{"all is well", "a", "", "", true, true, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			for _, id := range strings.Fields(tt.faults) {
				s.faults[id] = true
			}
			s.fails[tt.fails] = true
			synctest.Test(t, func(t *testing.T) {
				o := s.options(tasks(strings.Split(tt.tasks, ";")...), 1)
				o.StopOnFailure = tt.stop
				if _, err := s.run(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				clear(s.faults)
				clear(s.fails)
				if got := s.tryAgain(t.Context(), o, tt.all); got != tt.status {
					t.Errorf("got %q, want %q", got, tt.status)
				}
				if diff := cmp.Diff(strings.Fields(tt.want), slices.Clip(append([]string{}, s.said...))); diff != "" {
					t.Error(diff)
				}
				if status, err := plan.StatusOf(s.path); err != nil || tt.status != "" && status != tt.status {
					t.Errorf("the record says %q, %v", status, err)
				}
			})
		})
	}
}

// A run that was to stop at a failure does so too if its server ended between the
// failure and its end.
func TestStopAfterResume(t *testing.T) {
	s := newStage(t)
	text := `{"type":"plan","version":1,"digest":"digest"}` + "\n" + `{"type":"task_end","end":{"task_id":"a","status":"failed"}}` + "\n"
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := s.options(tasks("a", "b"), 1)
		o.StopOnFailure = true
		if status, err := s.run(t.Context(), o); err != nil || status != api.PlanFailed || !slices.Equal(s.said, []string{"b:skipped"}) {
			t.Errorf("got %s, %v, %v", status, err, s.said)
		}
	})
}

// The task of a worker that is gone goes to another, and the run ends when none is
// left.
func TestLostWorkers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		workers int
		lost    map[int]bool
		status  string
		want    string
	}{
		{"one of two", 2, map[int]bool{0: true}, api.PlanCompleted, "+a.1 +a.2 a:success +b.1 b:success"},
		{"all", 2, map[int]bool{0: true, 1: true}, api.PlanFailed, "+a.1 +a.2 a:failed b:skipped"},
		{"one after the other", 5, map[int]bool{0: true, 1: true, 2: true, 3: true}, api.PlanFailed, "+a.1 +a.2 +a.3 a:failed b:skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.lost = tt.lost
			synctest.Test(t, func(t *testing.T) {
				status, err := s.run(t.Context(), s.options(tasks("a", "b < a"), tt.workers))
				if err != nil || status != tt.status {
					t.Errorf("got %s, %v, want %s", status, err, tt.status)
				}
				if diff := cmp.Diff(strings.Fields(tt.want), s.said); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// What is no record is named, and neither waited for nor followed nor written to.
func TestDamagedRecords(t *testing.T) {
	const head = `{"type":"plan","version":1,"digest":"digest"}` + "\n"
	file := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for _, tt := range []struct {
		name, want string // "" for a record that can be used
		make       func(path string) error
	}{
		{"empty", "", file("")},
		{"torn at its first line", "", file(head[:20])},
		{"torn", "", file(head + `{"type":"task_st`)},
		{"of another version", "version 2", file(strings.Replace(head, ":1", ":2", 1))},
		{"damaged within", "line 2", file(head + "{\"type\":\n" + head)},
		{"begun twice", "line 2 is of type \"plan\"", file(head + head)},
		{"without beginning", "line 1 is of type \"plan_end\"", file(`{"type":"plan_end","status":"failed"}` + "\n")},
		{"with what nobody knows", "line 2", file(head + `{"type":"moon"}` + "\n")},
		{"too long a line", "a line has more than", file(head + strings.Repeat("x", 17<<20))},
		{"too large", "it has more than", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(head), 0o600), os.Truncate(path, 300<<20))
		}},
		{"no text", "line 1", file("\x00\xff\n")},
		{"a directory", "no regular file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a link", "no regular file", func(path string) error { return os.Symlink(path+".other", path) }},
		{"a pipe", "no regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run.jsonl")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, statusErr := plan.StatusOf(path)
			record, err := plan.Open(path, plan.Identity{Digest: "digest"})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 96<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
			if err == nil {
				record.Close()
			}
			for _, err := range []error{statusErr, err} {
				damaged, ok := errors.AsType[*api.Error](err)
				if tt.want == "" && err != nil || tt.want != "" && (!ok || !strings.Contains(damaged.Details, tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
			if _, err := os.Lstat(path + ".other"); err == nil {
				t.Error("the link was followed")
			}
		})
	}
}

// Where there can be no record, that is said without a path, and nothing is left.
func TestUnrecorded(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "plans"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := plan.Open(filepath.Join(home, "plans", "run.jsonl"), plan.Identity{Digest: "digest"})
	if !errors.Is(err, plan.ErrUnrecorded) || strings.Contains(err.Error(), home) {
		t.Errorf("got %v", err)
	}
}
