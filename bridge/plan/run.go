package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// abortTimeout is how long the turns of a plan that was cancelled may take to
// end.
const abortTimeout = 10 * time.Second

// Options are what a Runner needs, all of it.
type Options struct {
	Agents *agents.Registry
	Tasks  *task.Runner
	// Dir is where the records of runs are kept, one file for each; it is made when it is
	// needed, and one process uses it at a time.
	Dir string
	// Claims say which machine has a run; nil for a server alone.
	Claims Claims
	// Others are the other machines. Required with Claims.
	Others Others
	// Requests is what runs are part of: the end of the server waits for them.
	Requests *rpc.DrainGroup
	Log      *zap.Logger
}

// Runner carries out plans. It is safe for concurrent use.
type Runner struct {
	o     Options
	locks agents.KeyLock // by run

	mu   sync.Mutex      // guards runs
	runs map[string]*run // that are under way
}

// NewRunner returns a Runner that carries out nothing yet.
func NewRunner(o Options) *Runner {
	return &Runner{o: o, runs: map[string]*run{}}
}

// run is one run of a plan, which goes on without anybody who waits for it.
type run struct {
	id     string
	digest string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at last; the two below are valid then
	result api.RunPlanResult
	err    error

	mu    sync.Mutex     // guards what follows
	notes []notification // at most two for each task, and two
	more  chan struct{}
}

// notification is one notification of a run.
type notification struct {
	method string
	line   []byte
}

// errPlanEnded is why a run that was cancelled ends.
var errPlanEnded = fmt.Errorf("the run was cancelled: %w", supervisor.ErrAborted)

// Serve is run_plan.
func (r *Runner) Serve(ctx context.Context, c *rpc.Call, p api.RunPlanParams, out *rpc.Stream) (api.RunPlanResult, error) {
	run, err := r.begin(ctx, c, p)
	if err != nil || c.Request.IsNotification() {
		return api.RunPlanResult{}, err
	}
	if out != nil { // of one that has ended before, the beginning and the end are sent
		if err := follow(ctx, out, run); err != nil {
			return api.RunPlanResult{}, err
		}
	}
	return run.wait(ctx)
}

// wait waits for the end of the run, which does not depend on that.
func (r *run) wait(ctx context.Context) (api.RunPlanResult, error) {
	select {
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		return api.RunPlanResult{}, ctx.Err()
	}
}

// begin joins the run of that id, goes on with it, or begins it. One that has
// ended for good is there with its result.
func (r *Runner) begin(ctx context.Context, c *rpc.Call, p api.RunPlanParams) (*run, error) {
	id, retry := task.RequestID(p.RequestID), protocol.Value(p.Retry)
	p.RequestID, p.Retry = &id, nil
	c.PlanRun = id
	digest, whole, err := digestsOf(p)
	if err != nil {
		return nil, err
	}
	defer r.locks.Lock(id)()
	if run := r.get(id); run != nil {
		if run.digest != digest {
			return nil, ErrConflict
		}
		return run, nil
	}
	if err := r.claim(ctx, id, p); err != nil {
		return nil, err
	}
	record, err := Open(r.record(id), Identity{Digest: digest, Earlier: []string{whole}, Plan: &p.Plan})
	if err != nil {
		r.releaseUnrecorded(ctx, id)
		return nil, err
	}
	if !record.Resumed {
		r.release(ctx, Prune(r.o.Dir, func(other string) bool { return other == id || r.get(other) != nil })...)
	}
	var again []string
	if record.Status != "" {
		if again = record.Again(p.Plan, stops(p), retry); again == nil {
			defer record.Close()
			return endedPlan(p, id, record), nil
		}
	}
	leave, err := agents.Enter(ctx, r.o.Agents, protocol.Value(p.Agents), false) // they stay on this machine until the run has ended
	if err != nil {
		return nil, errors.Join(err, r.discard(ctx, id, record))
	}
	begun := false
	defer func() {
		if !begun {
			leave()
		}
	}()
	if err := r.stays(ctx, id, p, record); err != nil {
		return nil, err
	}
	pool, err := r.newPool(c, p)
	if err != nil {
		return nil, errors.Join(err, r.discard(ctx, id, record))
	}
	if err := r.ensure(ctx, pool, p); err != nil {
		pool.close()
		return nil, errors.Join(err, r.discard(ctx, id, record))
	}
	if again != nil {
		if err := record.Reopen(again); err != nil {
			pool.close()
			record.Close()
			return nil, err
		}
	}
	if !r.o.Requests.Enter() {
		pool.close()
		return nil, errors.Join(supervisor.ErrDraining, r.discard(ctx, id, record))
	}
	// The run outlives its request, and ends by cancel, timeout_s or the server.
	lives, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	run := newRun(id)
	run.digest, run.cancel = digest, cancel
	r.mu.Lock()
	r.runs[id] = run
	r.mu.Unlock()
	begun = true
	go r.execute(lives, run, p, record, pool, leave) // joined by the drain, as it is inside s.requests
	return run, nil
}

// ensure finds out that the workers can be had: all that were named, or the first
// of a pool, which is created.
func (r *Runner) ensure(ctx context.Context, pool *pool, p api.RunPlanParams) error {
	for _, agent := range protocol.Value(p.Agents) {
		a, err := r.o.Agents.Resolve(ctx, agent)
		if err == nil {
			err = agents.CheckIn(ctx, r.o.Agents, a, protocol.Value(p.Context).CurrentDirectory)
		}
		if err != nil {
			return err
		}
	}
	if p.Agents != nil {
		return nil
	}
	_, err := pool.worker(ctx, 0)
	return err
}

func (r *Runner) record(id string) string { return filepath.Join(r.o.Dir, id+".jsonl") }

func stops(p api.RunPlanParams) bool { return protocol.Value(p.OnFailure) != api.OnFailureContinue }

func (r *Runner) get(id string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id]
}

func newRun(id string) *run {
	return &run{id: id, done: make(chan struct{}), more: make(chan struct{})}
}

// endedPlan is a run that ended before, with its beginning and its end to tell.
func endedPlan(p api.RunPlanParams, id string, record *Record) *run {
	run := newRun(id)
	run.result = resultOf(p, id, record)
	run.result.Resumed, run.result.Replayed = false, true
	run.start(p.Plan, record)
	run.note(api.PlanEnd, api.PlanEndParams{PlanRunID: id, Status: record.Status})
	close(run.done)
	return run
}

// start notes that the run begins, or goes on.
func (r *run) start(p api.Plan, record *Record) {
	completed := []string{}
	for _, t := range p.Tasks {
		if _, done := record.Done[t.ID]; done {
			completed = append(completed, t.ID)
		}
	}
	r.note(api.PlanStart, api.PlanStartParams{PlanRunID: r.id, Tasks: len(p.Tasks), Completed: completed})
}

// execute carries out a run until it ends, and then lets go of its agents.
func (r *Runner) execute(ctx context.Context, run *run, p api.RunPlanParams, record *Record, pool *pool, leave func()) {
	defer r.o.Requests.Leave()
	defer leave()
	defer record.Close()
	if p.TimeoutS != nil {
		var over context.CancelFunc
		ctx, over = context.WithTimeout(ctx, task.Timeout(p.TimeoutS))
		defer over()
	}
	run.start(p.Plan, record)
	status, err := Execute(ctx, ExecuteOptions{
		Plan: p.Plan, Workers: len(pool.ids), StopOnFailure: stops(p),
		Work: &work{runner: r, run: run, params: p, pool: pool}, Record: record, Pause: r.o.Requests.Closing(),
	})
	pool.close()
	if err == nil {
		run.result = resultOf(p, run.id, record)
		run.note(api.PlanEnd, api.PlanEndParams{PlanRunID: run.id, Status: status})
	}
	if errors.Is(err, ErrInterrupted) {
		err = fmt.Errorf("the run goes on when it is asked for again: %w", supervisor.ErrDraining)
	}
	run.err = err
	run.cancel(nil)
	r.mu.Lock()
	delete(r.runs, run.id)
	r.mu.Unlock()
	close(run.done)
	r.o.Log.Info("plan ended", zap.String("plan_run_id", run.id), zap.String("status", status), zap.Int("tasks", len(p.Plan.Tasks)), zap.Error(err))
}

// Cancel ends a run for good and waits until it has ended. It reports
// whether it ended as cancelled, now or before.
func (r *Runner) Cancel(ctx context.Context, id string) (bool, error) {
	if !api.ValidPlanID(id) {
		return false, nil
	}
	unlock := r.locks.Lock(id) // one that is just beginning is there then
	run := r.get(id)
	if run == nil {
		defer unlock()
		status, err := StatusOf(r.record(id))
		return status == api.PlanCancelled, err
	}
	unlock()
	run.cancel(errPlanEnded)
	select {
	case <-run.done:
		return run.result.Status == api.PlanCancelled, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Interrupt cuts off all runs; each goes on when it is asked for again.
func (r *Runner) Interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs {
		run.cancel(ErrInterrupted)
	}
}

// work is the [Work] of a run.
type work struct {
	runner *Runner
	run    *run
	params api.RunPlanParams
	pool   *pool
}

func (w *work) RequestID(task string, attempt int) string { return attemptID(w.run.id, task, attempt) }

func (w *work) Started(s Start) {
	w.run.note(api.TaskStart, api.TaskStartParams{PlanRunID: w.run.id, TaskID: s.TaskID, AgentID: w.pool.id(s.Worker), RequestID: s.RequestID})
}

func (w *work) Ended(result api.PlanTaskResult) {
	w.run.note(api.TaskEnd, api.TaskEndParams{PlanRunID: w.run.id, PlanTaskResult: result})
}

// Do has a worker do one attempt at a task.
func (w *work) Do(ctx context.Context, st Start, t api.PlanTask, needs []api.PlanTaskResult) (result api.PlanTaskResult, next Next) {
	r, pool := w.runner, w.pool
	result = api.PlanTaskResult{TaskID: st.TaskID, Status: api.TaskFailed, AgentID: pool.id(st.Worker), RequestID: st.RequestID}
	fail := func(err error) {
		told := rpc.ToError(err)
		if told.Internal {
			r.o.Log.Error("a task of a plan failed", zap.String("request_id", st.RequestID), zap.Error(err))
		}
		result.Error = &api.TaskError{Code: int(told.Err.Code), Message: told.Err.Message, Type: told.Err.Data.Type, Details: told.Err.Data.Details}
		result.Resumable = !ownFault(err)
	}
	defer func() {
		if p := recover(); p != nil {
			fail(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	defer func() {
		if next != Again && !errors.Is(context.Cause(ctx), ErrInterrupted) { // else the same one may still have the outcome
			pool.retire(st.Worker)
		}
	}()
	a, err := pool.worker(ctx, st.Worker)
	var done api.ExecuteTaskResult
	var why error
	if err == nil {
		done, why, err = r.o.Tasks.Run(ctx, a, taskOf(w.params, t, needs), st.RequestID, "")
	}
	switch {
	case ctx.Err() != nil && err != nil:
		if a != nil {
			r.abortTask(ctx, a, st.RequestID, protocol.Value(w.params.Attempts))
		}
		result.Status = api.TaskCancelled
	case errors.Is(err, supervisor.ErrNotFound) || errors.Is(why, supervisor.ErrNotFound): // it was destroyed under its task
		fail(cmp.Or(err, rpc.AgentNotFound(result.AgentID, rpc.ErrDestroyed)))
		if next = Lost; pool.replace(st.Worker) {
			next = Again
		}
	case errors.Is(why, supervisor.ErrStopped): // by shutdown: the next request starts it
		fail(why)
		next = Again
	case err != nil:
		fail(err)
		if st.Resumed && cutOff(err) {
			next = Again
		}
	default:
		result.Status, result.Result = done.Status, &done
		if st.Resumed && why != nil && ctx.Err() == nil {
			next = Again
		}
	}
	return result, next
}

// ownFault reports whether a task failed for good: by what it asks for, or by what
// its agent answers.
func ownFault(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	answered := ok && e.Kind == api.KindExecutionError
	_, refused := errors.AsType[*supervisor.CommandError](err)
	return answered || refused
}

func cutOff(err error) bool {
	_, crashed := errors.AsType[*supervisor.CrashError](err)
	return crashed
}

// abortTask ends the turns of a task whose run is over, unless they go on later.
func (r *Runner) abortTask(ctx context.Context, a *supervisor.Agent, id string, attempts int) {
	if errors.Is(context.Cause(ctx), ErrInterrupted) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	for _, turn := range task.TurnIDs(id, attempts) {
		if _, err := a.Abort(ctx, turn); err != nil {
			r.o.Log.Warn("a turn of a plan that was cancelled", zap.String("agent", a.ID()), zap.String("request_id", turn), zap.Error(err))
		}
	}
}

// maxNeed bounds what a task gets of the result of one that it depends on, in bytes.
const maxNeed = 4 << 10

// taskOf is a task of a plan as an executor is asked for it. The same records
// make the same task.
func taskOf(p api.RunPlanParams, t api.PlanTask, needs []api.PlanTaskResult) api.ExecuteTaskParams {
	prompt := t.Description
	for _, need := range needs {
		if need.Result == nil {
			continue
		}
		prompt += fmt.Sprintf("\n\nThe task %s, which was done before: %s", need.TaskID, textcut.Clip(need.Result.Output.Explanation, maxNeed))
		for _, path := range append(need.Result.Output.FilesCreated, need.Result.Output.FilesModified...) {
			prompt += "\n- " + path
		}
	}
	return api.ExecuteTaskParams{TaskType: t.Type, Prompt: prompt, Context: p.Context, Options: p.Options, TimeoutS: p.TaskTimeoutS, Attempts: p.Attempts}
}

func resultOf(p api.RunPlanParams, id string, record *Record) api.RunPlanResult {
	result := api.RunPlanResult{PlanRunID: id, Status: record.Status, Resumed: record.Resumed, Tasks: []api.PlanTaskResult{}}
	result.Resumable = record.Again(p.Plan, stops(p), false) != nil
	for _, t := range p.Plan.Tasks {
		result.Tasks = append(result.Tasks, record.Done[t.ID])
	}
	return result
}

// digestsOf are what tells runs of one id apart: a run may go on with other times, another pool
// and another context; whole is as runs of earlier versions were told apart.
func digestsOf(p api.RunPlanParams) (digest, whole string, err error) {
	if whole, err = digestOf(p); err != nil {
		return "", "", err
	}
	p.TimeoutS, p.TaskTimeoutS, p.Attempts, p.Pool, p.Context = nil, nil, nil, nil, nil
	digest, err = digestOf(p)
	return digest, whole, err
}

// digestOf is that of all parameters.
func digestOf(p api.RunPlanParams) (string, error) {
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode a plan: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
