package plan_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/plan"
)

// stage plays the workers of a plan: each task takes a second.
type stage struct {
	t      *testing.T
	path   string
	fails  map[string]bool
	faults map[string]bool // fail, and not by their own work
	again  map[string]bool // a resumed attempt at it was cut off
	lost   map[int]bool    // workers that are gone
	mu     sync.Mutex      // guards what follows
	said   []string
	inside map[int]bool // workers
	used   map[int]bool // workers
	most   int
}

func tasks(lines ...string) api.Plan {
	var p api.Plan
	for i, line := range lines {
		id, needs, _ := strings.Cut(line, " < ")
		p.Tasks = append(p.Tasks, api.PlanTask{ID: id, Type: "testing", Description: id, Dependencies: strings.Fields(needs), Priority: i})
	}
	return p
}

func (s *stage) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *stage) Do(ctx context.Context, st plan.Start, t api.PlanTask, needs []api.PlanTaskResult) (api.PlanTaskResult, plan.Next) {
	s.mu.Lock()
	if s.inside[st.Worker] {
		s.t.Errorf("worker %d has two tasks", st.Worker)
	}
	s.inside[st.Worker] = true
	s.most = max(s.most, len(s.inside))
	s.used[st.Worker] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.inside, st.Worker)
		s.mu.Unlock()
	}()
	for i, need := range needs {
		if need.TaskID != t.Dependencies[i] || need.Status != api.TaskSuccess {
			s.t.Errorf("%s was begun after %+v", t.ID, need)
		}
	}
	result := api.PlanTaskResult{TaskID: t.ID, Status: api.TaskSuccess, RequestID: st.RequestID}
	if s.lost[st.Worker] {
		result.Status, result.Resumable = api.TaskFailed, true
		return result, plan.Lost
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		result.Status = api.TaskCancelled
		return result, plan.Ended
	}
	if st.Resumed && s.again[t.ID] {
		return result, plan.Again
	}
	if s.fails[t.ID] || s.faults[t.ID] {
		result.Status, result.Error = api.TaskFailed, &api.TaskError{Code: -32000, Message: "m", Type: "T"}
		result.Resumable = s.faults[t.ID]
		return result, plan.Ended
	}
	result.Result = &api.ExecuteTaskResult{Status: api.TaskSuccess, Output: api.TaskOutput{FilesModified: []string{}, FilesCreated: []string{"/a"}}}
	return result, plan.Ended
}

func (s *stage) options(p api.Plan, workers int) plan.ExecuteOptions {
	s.inside, s.used = map[int]bool{}, map[int]bool{}
	return plan.ExecuteOptions{
		Plan: p, Workers: workers, Work: s,
	}
}

func (*stage) RequestID(task string, attempt int) string {
	if attempt == 1 {
		return "run/" + task
	}
	return fmt.Sprintf("run/%s/%d", task, attempt)
}

func (s *stage) Started(st plan.Start) {
	if st.RequestID != s.RequestID(st.TaskID, st.Attempt) {
		s.t.Errorf("the attempt %d at %s has the id %s", st.Attempt, st.TaskID, st.RequestID)
	}
	s.say("+%s.%d", st.TaskID, st.Attempt)
}

func (s *stage) Ended(r api.PlanTaskResult) { s.say("%s:%s", r.TaskID, r.Status) }

// run opens the record and executes.
func (s *stage) run(ctx context.Context, o plan.ExecuteOptions) (string, error) {
	s.t.Helper()
	record, err := plan.Open(s.path, plan.Identity{Digest: "digest"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer record.Close()
	o.Record = record
	return plan.Execute(ctx, o)
}

func newStage(t *testing.T) *stage {
	return &stage{t: t, path: filepath.Join(t.TempDir(), "plans", "run.jsonl"), fails: map[string]bool{}, again: map[string]bool{}, faults: map[string]bool{}, lost: map[int]bool{}}
}

func TestExecute(t *testing.T) {
	diamond := []string{"a", "b < a", "c < a", "d < b c"}
	for _, tt := range []struct {
		name    string
		tasks   []string
		workers int
		fails   string
		stop    bool
		want    string
		status  string
		most    int
	}{
		{"in order", diamond, 1, "", true, "+a.1 a:success +b.1 b:success +c.1 c:success +d.1 d:success", api.PlanCompleted, 1},
		{"the last is written first", []string{"z < y", "y < x", "x"}, 4, "", true, "+x.1 x:success +y.1 y:success +z.1 z:success", api.PlanCompleted, 1},
		{"in parallel", []string{"a", "b", "c", "d"}, 3, "", true, "", api.PlanCompleted, 3},
		{"stop", []string{"a", "b", "c < a"}, 1, "a", true, "+a.1 a:failed c:skipped b:skipped", api.PlanFailed, 1},
		{"continue", []string{"a", "b", "c < a", "d < c"}, 1, "a", false, "+a.1 a:failed c:skipped d:skipped +b.1 b:success", api.PlanFailed, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			synctest.Test(t, func(t *testing.T) {
				o := s.options(tasks(tt.tasks...), tt.workers)
				o.StopOnFailure = tt.stop
				s.fails[tt.fails] = true
				status, err := s.run(t.Context(), o)
				if err != nil || status != tt.status || s.most != tt.most || len(s.used) != tt.most { // no worker is made that is not needed
					t.Errorf("got %s, %v, with up to %d of %d workers at once, want %s and %d", status, err, s.most, len(s.used), tt.status, tt.most)
				}
				if tt.want != "" {
					if diff := cmp.Diff(strings.Fields(tt.want), s.said); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

// A run that is cut off goes on: what was done is not done again, what was under
// way is begun with the id that it had, on the worker that it had, and again
// with another where that came to nothing.
func TestResume(t *testing.T) {
	s := newStage(t)
	p := tasks("a", "b", "c < a b", "d < c")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { cancel(plan.ErrInterrupted) }) // within c
		if _, err := s.run(ctx, s.options(p, 1)); !errors.Is(err, plan.ErrInterrupted) {
			t.Errorf("got %v", err)
		}
	})
	if want := strings.Fields("+a.1 a:success +b.1 b:success +c.1"); !slices.Equal(s.said, want) {
		t.Fatalf("got %v, want %v", s.said, want)
	}
	torn, err := os.OpenFile(s.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"type":"task_end","end":{"task_id":"c"`); err != nil {
		t.Fatal(err)
	}
	torn.Close()

	s.said, s.again["c"] = nil, true
	synctest.Test(t, func(t *testing.T) {
		status, err := s.run(t.Context(), s.options(p, 1))
		if err != nil || status != api.PlanCompleted {
			t.Errorf("got %s, %v", status, err)
		}
	})
	if want := strings.Fields("+c.1 +c.2 c:success +d.1 d:success"); !slices.Equal(s.said, want) {
		t.Errorf("got %v, want %v", s.said, want)
	}
	record, err := plan.Open(s.path, plan.Identity{Digest: "digest"})
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	if record.Status != api.PlanCompleted || len(record.Done) != 4 || record.Done["c"].RequestID != "run/c/2" ||
		record.Done["a"].Result.Output.FilesCreated[0] != "/a" {
		t.Errorf("got %+v", record)
	}
	if _, err := plan.Open(s.path, plan.Identity{Digest: "another"}); !errors.Is(err, plan.ErrConflict) {
		t.Errorf("another plan: %v", err)
	}
}

func TestEndings(t *testing.T) {
	for _, tt := range []struct {
		name, want, status, reason string
		end                        func(context.Context) (context.Context, func())
	}{
		{"cancelled", "+a.1 a:cancelled b:skipped c:skipped", api.PlanCancelled, "not wanted", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second/2, func() { cancel(errors.New("not wanted")) })
			return ctx, func() {}
		}},
		{"timed out", "+a.1 a:cancelled b:skipped c:skipped", api.PlanTimedOut, "the time of the run was over", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second/2)
			return ctx, cancel
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, done := tt.end(t.Context())
				defer done()
				status, err := s.run(ctx, s.options(tasks("a", "b < a", "c"), 1))
				if err != nil || status != tt.status {
					t.Errorf("got %s, %v, want %s", status, err, tt.status)
				}
				if record, err := plan.Look(s.path); err != nil || record.Done["c"].Reason != tt.reason {
					t.Errorf("c is skipped as %q, want %q, %v", record.Done["c"].Reason, tt.reason, err)
				}
				if diff := cmp.Diff(strings.Fields(tt.want), s.said); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A pause lets what is under way end, and begins nothing.
func TestPause(t *testing.T) {
	s := newStage(t)
	synctest.Test(t, func(t *testing.T) {
		pause := make(chan struct{})
		time.AfterFunc(time.Second/2, func() { close(pause) })
		o := s.options(tasks("a", "b"), 1)
		o.Pause = pause
		if _, err := s.run(t.Context(), o); !errors.Is(err, plan.ErrInterrupted) {
			t.Errorf("got %v", err)
		}
		if want := strings.Fields("+a.1 a:success"); !slices.Equal(s.said, want) {
			t.Errorf("got %v, want %v", s.said, want)
		}
	})
}

// Records that cannot be written end the run, and none is begun unrecorded.
func TestUnwritable(t *testing.T) {
	s := newStage(t)
	record, err := plan.Open(s.path, plan.Identity{Digest: "digest"})
	if err != nil {
		t.Fatal(err)
	}
	record.Close()
	o := s.options(tasks("a"), 1)
	o.Record = record
	if status, err := plan.Execute(t.Context(), o); !errors.Is(err, plan.ErrUnrecorded) || len(s.said) > 0 {
		t.Errorf("got %s, %v, %v", status, err, s.said)
	}
}

// The oldest records of runs that have ended go first, then those that could be
// gone on with, and never one that is under way.
func TestPrune(t *testing.T) {
	const ended = "{\"type\":\"plan\",\"version\":1,\"digest\":\"digest\"}\n{\"type\":\"plan_end\",\"status\":\"completed\"}\n"
	for _, tt := range []struct {
		name  string
		ended func(i int) bool
		gone  []int
	}{
		{"all have ended", func(int) bool { return true }, []int{1, 2, 3}},
		{"some have ended", func(i int) bool { return i%2 == 0 }, []int{2, 4, 6}},
		{"one has ended", func(i int) bool { return i == 200 }, []int{1, 2, 200}},
		{"none has ended", func(int) bool { return false }, []int{1, 2, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%d.jsonl", i)) }
			for i := range plan.Kept + 3 {
				text := ended
				if !tt.ended(i) {
					text, _, _ = strings.Cut(ended, "\"completed")
				}
				if err := os.WriteFile(path(i), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				old := time.Unix(int64(1000+i), 0)
				if err := os.Chtimes(path(i), old, old); err != nil {
					t.Fatal(err)
				}
			}
			plan.Prune(dir, func(id string) bool { return id == "0" })
			var gone []int
			for i := range plan.Kept + 3 {
				if _, err := os.Stat(path(i)); err != nil {
					gone = append(gone, i)
				}
			}
			if !slices.Equal(gone, tt.gone) {
				t.Errorf("gone are %v, want %v", gone, tt.gone)
			}
		})
	}
}

// FuzzOpen: whatever a record holds, it is refused or can be gone on with.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("{\"type\":\"plan\",\"digest\":\"digest\"}\n{\"type\":\"task_start\",\"start\":{\"task_id\":\"a\",\"worker\":7,\"request_id\":\"r/a\",\"attempt\":1}}\n"))
	f.Add([]byte("{\"type\":\"plan\",\"digest\":\"digest\"}\n{\"type\":\"plan_end\",\"status\":\"failed\"}\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		first, err := plan.Open(path, plan.Identity{Digest: "digest"})
		if err != nil {
			return
		}
		first.Close()
		second, err := plan.Open(path, plan.Identity{Digest: "digest"})
		if err != nil {
			t.Fatalf("opened once and not twice: %v", err)
		}
		defer second.Close()
		if diff := cmp.Diff(first.Done, second.Done); diff != "" {
			t.Error(diff)
		}
	})
}
