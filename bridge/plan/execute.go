package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"nexus.internal/bridge/api"
)

// ErrInterrupted is the cause to end the context of Execute with where the run
// is to go on later: what is under way is not recorded. Any other cause ends it
// for good.
var ErrInterrupted = errors.New("the plan goes on later")

// Next is what follows an attempt at a task.
type Next int

// What can follow.
const (
	Ended Next = iota // nothing
	Again             // another attempt: this one came to nothing
	Lost              // another attempt by another worker: this one is gone
)

// maxAttempts is how many attempts at a task one Execute makes, where they come
// to nothing.
const maxAttempts = 3

// Work carries out tasks. Started and Ended are called by the goroutine of Execute.
type Work interface {
	// Do carries out one task, in a goroutine of its own, and returns soon after
	// the end of ctx. needs are the results of its dependencies, in their order.
	// The result stands only if next is Ended, or if there is no other attempt.
	Do(ctx context.Context, s Start, t api.PlanTask, needs []api.PlanTaskResult) (result api.PlanTaskResult, next Next)
	// RequestID is the id of an attempt at a task.
	RequestID(taskID string, attempt int) string
	// Started gets an attempt that was recorded and begins.
	Started(Start)
	// Ended gets a result that was recorded.
	Ended(api.PlanTaskResult)
}

// ExecuteOptions are what Execute needs. All but Pause are required.
type ExecuteOptions struct {
	// Plan has no problems: see api.Plan.Problems.
	Plan    api.Plan
	Workers int // at least 1
	// StopOnFailure starts nothing more once a task has failed; else what does
	// not depend on it goes on.
	StopOnFailure bool
	Record        *Record
	Work          Work
	// Pause is closed when nothing more is to be begun and the run is to go on
	// later. What is under way may end.
	Pause <-chan struct{}
}

// execution is one Execute.
type execution struct {
	ExecuteOptions
	free     []int // workers
	under    map[string]Start
	vain     map[string]int // attempts at a task that came to nothing
	stopped  string         // why nothing more is begun; "" while it is
	left     bool           // the run goes on later
	finished chan finished
}

// finished is how an attempt ended.
type finished struct {
	result api.PlanTaskResult
	next   Next
}

// Execute carries out what the record does not have yet, and returns how the run
// ended: one of api.PlanCompleted and its like. ErrInterrupted is that it goes
// on later; another error, that it could not be recorded. Nothing of it runs
// any more then.
func Execute(ctx context.Context, o ExecuteOptions) (string, error) {
	r := &execution{ExecuteOptions: o, under: map[string]Start{}, vain: map[string]int{}, finished: make(chan finished)}
	for worker := range o.Workers {
		r.free = append(r.free, worker)
	}
	for _, t := range o.Plan.Tasks { // what failed before this one began
		if result, done := o.Record.Done[t.ID]; done {
			r.fail(result)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, pause := ctx.Done(), o.Pause
	err := r.step(ctx)
	for err == nil && len(r.under) > 0 {
		select {
		case f := <-r.finished:
			err = r.taskEnded(ctx, f)
		case <-pause:
			pause, r.left, r.stopped = nil, true, "the server goes down"
		case <-done:
			done = nil
			r.end(ctx)
		}
		if err == nil {
			err = r.step(ctx)
		}
	}
	if err != nil {
		cancel(err)
	}
	for len(r.under) > 0 {
		delete(r.under, (<-r.finished).result.TaskID)
	}
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil && r.stopped == "":
		r.end(ctx)
	}
	if r.left && len(r.Record.Done) < len(o.Plan.Tasks) {
		return "", ErrInterrupted
	}
	return r.close(ctx)
}

func (r *execution) end(ctx context.Context) {
	cause := context.Cause(ctx)
	r.stopped = cause.Error()
	if errors.Is(cause, context.DeadlineExceeded) {
		r.stopped = "the time of the run was over"
	}
	r.left = r.left || errors.Is(cause, ErrInterrupted)
}

// taskEnded takes the result of a task, unless it was cut off to go on later.
func (r *execution) taskEnded(ctx context.Context, f finished) error {
	result, s := f.result, r.under[f.result.TaskID]
	if f.next != Lost {
		r.free = slices.Insert(r.free, 0, s.Worker) // it is there: others may have to be created
	}
	delete(r.under, result.TaskID)
	r.vain[s.TaskID]++
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrInterrupted) && result.Status != api.TaskSuccess:
		return nil // whatever it died of, it would not have without
	case f.next != Ended && r.vain[s.TaskID] < maxAttempts && len(r.free)+len(r.under) > 0:
		s = Start{TaskID: s.TaskID, Worker: s.Worker, Attempt: s.Attempt + 1}
		s.RequestID = r.Work.RequestID(s.TaskID, s.Attempt)
		return r.Record.start(s)
	}
	err := r.record(result)
	r.fail(result)
	if len(r.free)+len(r.under) == 0 && r.stopped == "" {
		r.stopped = "no agent is left"
	}
	return err
}

// fail begins nothing more after a task that did not succeed, if that is asked.
func (r *execution) fail(result api.PlanTaskResult) {
	if r.StopOnFailure && result.Status != api.TaskSuccess && r.stopped == "" {
		r.stopped = "the task " + result.TaskID + " did not succeed"
	}
}

func (r *execution) record(result api.PlanTaskResult) error {
	if err := r.Record.end(result); err != nil {
		return err
	}
	r.Work.Ended(result)
	return nil
}

// step skips what cannot run any more and begins what can, as long as there are
// workers.
func (r *execution) step(ctx context.Context) error {
	if err := r.skip(); err != nil {
		return err
	}
	if r.stopped == "" && ctx.Err() != nil {
		r.end(ctx)
	}
	for r.stopped == "" && len(r.free) > 0 {
		t, needs, ok := r.next()
		if !ok {
			return nil
		}
		s := Start{TaskID: t.ID, Worker: r.free[0], Attempt: r.Record.attempts[t.ID] + 1}
		if begun, again := r.Record.Begun[t.ID]; again {
			s = begun // by the same worker and id: perhaps it has an outcome
			if !slices.Contains(r.free, s.Worker) {
				s.Worker = r.free[0]
			}
		} else {
			s.RequestID = r.Work.RequestID(t.ID, s.Attempt)
			if err := r.Record.start(s); err != nil {
				return err
			}
		}
		r.Work.Started(s)
		r.free = slices.DeleteFunc(r.free, func(w int) bool { return w == s.Worker })
		r.under[t.ID] = s
		go func() { // joined by Execute, which takes a result for each task that is under way
			result, next := r.Work.Do(ctx, s, t, needs)
			r.finished <- finished{result, next}
		}()
	}
	return nil
}

// next is the task to begin: of those whose dependencies have succeeded, one that
// was begun before, else that of the lowest priority, else the first.
func (r *execution) next() (t api.PlanTask, needs []api.PlanTaskResult, ok bool) {
	var ready []api.PlanTask
	for _, t := range r.Plan.Tasks {
		_, done := r.Record.Done[t.ID]
		_, under := r.under[t.ID]
		if !done && !under && !slices.ContainsFunc(t.Dependencies, func(id string) bool { return r.Record.Done[id].Status != api.TaskSuccess }) {
			ready = append(ready, t)
		}
	}
	if len(ready) == 0 {
		return t, nil, false
	}
	begun := func(t api.PlanTask) int {
		if _, ok := r.Record.Begun[t.ID]; ok {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ready, func(a, b api.PlanTask) int {
		return cmp.Or(cmp.Compare(begun(a), begun(b)), cmp.Compare(a.Priority, b.Priority))
	})
	for _, id := range ready[0].Dependencies {
		needs = append(needs, r.Record.Done[id])
	}
	return ready[0], needs, true
}

// skip records the tasks that can never run, as something that they need did
// not succeed; and what depends on those.
func (r *execution) skip() error {
	for again := true; again; {
		again = false
		for _, t := range r.Plan.Tasks {
			if _, done := r.Record.Done[t.ID]; done {
				continue
			}
			for _, need := range t.Dependencies {
				result, done := r.Record.Done[need]
				if !done || result.Status == api.TaskSuccess {
					continue
				}
				again = true
				reason := fmt.Sprintf("it depends on %s, which ended as %s", need, result.Status)
				if err := r.record(api.PlanTaskResult{TaskID: t.ID, Status: api.TaskSkipped, Reason: reason}); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// close records what was never begun, and how the run ended.
func (r *execution) close(ctx context.Context) (string, error) {
	status := api.PlanCompleted
	for _, t := range r.Plan.Tasks {
		result, done := r.Record.Done[t.ID]
		if !done {
			result = api.PlanTaskResult{TaskID: t.ID, Status: api.TaskSkipped, Reason: r.stopped}
			if err := r.record(result); err != nil {
				return "", err
			}
		}
		if result.Status != api.TaskSuccess {
			status = api.PlanFailed
		}
	}
	if ctx.Err() != nil && status != api.PlanCompleted {
		status = api.PlanCancelled
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			status = api.PlanTimedOut
		}
	}
	return status, r.Record.finish(status)
}
