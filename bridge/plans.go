package bridge

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

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// abortTimeout is how long the turns of a plan that was cancelled may take to
// end.
const abortTimeout = 10 * time.Second

// plans are the runs that are under way, by their ids.
type plans struct {
	mu   sync.Mutex // guards runs
	runs map[string]*planRun
}

// planRun is one run of a plan, which goes on whoever waits for it.
type planRun struct {
	id     string
	digest string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at last; the two below are valid then
	result api.RunPlanResult
	err    error

	mu    sync.Mutex // guards what follows
	notes []planNote // at most two for each task, and two
	more  chan struct{}
}

// planNote is one notification of a run.
type planNote struct {
	method string
	line   []byte
}

// errPlanEnded is why a run that was cancelled ends.
var errPlanEnded = fmt.Errorf("the run was cancelled: %w", supervisor.ErrAborted)

func (s *Server) runPlan(ctx context.Context, c *rpc.Call, p api.RunPlanParams, out *rpc.Stream) (api.RunPlanResult, error) {
	run, err := s.beginPlan(ctx, c, p)
	if err != nil || c.Request.IsNotification() {
		return api.RunPlanResult{}, err
	}
	if out != nil { // of one that has ended before, the beginning and the end are told
		if err := s.followPlan(ctx, out, run); err != nil {
			return api.RunPlanResult{}, err
		}
	}
	return run.wait(ctx)
}

// wait waits for the end of the run, which does not depend on that.
func (r *planRun) wait(ctx context.Context) (api.RunPlanResult, error) {
	select {
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		return api.RunPlanResult{}, ctx.Err()
	}
}

// beginPlan joins the run of that id, goes on with it, or begins it. One that has
// ended for good is there with its result.
func (s *Server) beginPlan(ctx context.Context, c *rpc.Call, p api.RunPlanParams) (*planRun, error) {
	id, retry := requestID(p.RequestID), protocol.Value(p.Retry)
	p.RequestID, p.Retry = &id, nil
	c.PlanRun = id
	digest, err := digestOf(p)
	if err != nil {
		return nil, err
	}
	defer s.locks.lock(planLock(id))()
	if run := s.plans.get(id); run != nil {
		if run.digest != digest {
			return nil, plan.ErrConflict
		}
		return run, nil
	}
	record, err := plan.Open(s.planRecord(id), digest)
	if err != nil {
		return nil, err
	}
	if !record.Resumed {
		plan.Prune(s.o.PlansDir, func(other string) bool { return other == id || s.plans.get(other) != nil })
	}
	var again []string
	if record.Status != "" {
		if again = record.Again(p.Plan, stops(p), retry); again == nil {
			defer record.Close()
			return endedPlan(p, id, record), nil
		}
	}
	crew := s.newCrew(c, p)
	if err := s.muster(ctx, crew, p); err != nil {
		crew.dismiss()
		return nil, errors.Join(err, record.Discard())
	}
	if again != nil {
		if err := record.Reopen(again); err != nil {
			crew.dismiss()
			record.Close()
			return nil, err
		}
	}
	if !s.requests.Enter() {
		crew.dismiss()
		return nil, errors.Join(supervisor.ErrDraining, record.Discard())
	}
	// The run outlives its request, and ends by cancel, timeout_s or the server.
	lives, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	run := newPlanRun(id)
	run.digest, run.cancel = digest, cancel
	s.plans.mu.Lock()
	if s.plans.runs == nil {
		s.plans.runs = map[string]*planRun{}
	}
	s.plans.runs[id] = run
	s.plans.mu.Unlock()
	go s.carryPlan(lives, run, p, record, crew) // joined by the drain, as it is inside s.requests
	return run, nil
}

// muster finds out that the workers can be had: all that were named, or the first
// of a pool, which is created.
func (s *Server) muster(ctx context.Context, crew *crew, p api.RunPlanParams) error {
	for _, agent := range protocol.Value(p.Agents) {
		if _, err := s.agent(ctx, agent); err != nil {
			return err
		}
	}
	if p.Agents != nil {
		return nil
	}
	_, err := crew.worker(ctx, 0)
	return err
}

// planLock is the name of a run's lock: no agent has a slash in its name.
func planLock(id string) string { return "plan/" + id }

func (s *Server) planRecord(id string) string { return filepath.Join(s.o.PlansDir, id+".jsonl") }

func stops(p api.RunPlanParams) bool { return protocol.Value(p.OnFailure) != api.OnFailureContinue }

func (p *plans) get(id string) *planRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id]
}

func newPlanRun(id string) *planRun {
	return &planRun{id: id, done: make(chan struct{}), more: make(chan struct{})}
}

// endedPlan is a run that ended before, with its beginning and its end to tell.
func endedPlan(p api.RunPlanParams, id string, record *plan.Record) *planRun {
	run := newPlanRun(id)
	run.result = resultOf(p, id, record)
	run.result.Resumed, run.result.Replayed = false, true
	run.start(p.Plan, record)
	run.note(api.PlanEnd, api.PlanEndParams{PlanRunID: id, Status: record.Status})
	close(run.done)
	return run
}

// start notes that the run begins, or goes on.
func (r *planRun) start(p api.Plan, record *plan.Record) {
	completed := []string{}
	for _, t := range p.Tasks {
		if _, done := record.Done[t.ID]; done {
			completed = append(completed, t.ID)
		}
	}
	r.note(api.PlanStart, api.PlanStartParams{PlanRunID: r.id, Tasks: len(p.Tasks), Completed: completed})
}

// carryPlan sees a run to its end.
func (s *Server) carryPlan(ctx context.Context, run *planRun, p api.RunPlanParams, record *plan.Record, crew *crew) {
	defer s.requests.Leave()
	defer record.Close()
	if p.TimeoutS != nil {
		var over context.CancelFunc
		ctx, over = context.WithTimeout(ctx, timeout(p.TimeoutS))
		defer over()
	}
	run.start(p.Plan, record)
	status, err := plan.Execute(ctx, plan.Options{
		Plan: p.Plan, Workers: len(crew.ids), StopOnFailure: stops(p),
		Record: record, Pause: s.requests.Closing(),
		RequestID: func(task string, attempt int) string { return attemptID(run.id, task, attempt) },
		Do: func(ctx context.Context, st plan.Start, t api.PlanTask, needs []api.PlanTaskResult) (api.PlanTaskResult, plan.Next) {
			return s.carryTask(ctx, crew, st, taskOf(p, t, needs))
		},
		Tell: func(begun *plan.Start, ended *api.PlanTaskResult) {
			if begun != nil {
				run.note(api.TaskStart, api.TaskStartParams{
					PlanRunID: run.id, TaskID: begun.TaskID, AgentID: crew.id(begun.Worker), RequestID: begun.RequestID,
				})
				return
			}
			run.note(api.TaskEnd, api.TaskEndParams{PlanRunID: run.id, PlanTaskResult: *ended})
		},
	})
	crew.dismiss()
	if err == nil {
		run.result = resultOf(p, run.id, record)
		run.note(api.PlanEnd, api.PlanEndParams{PlanRunID: run.id, Status: status})
	}
	if errors.Is(err, plan.ErrInterrupted) {
		err = fmt.Errorf("the run goes on when it is asked for again: %w", supervisor.ErrDraining)
	}
	run.err = err
	run.cancel(nil)
	s.plans.mu.Lock()
	delete(s.plans.runs, run.id)
	s.plans.mu.Unlock()
	close(run.done)
	s.log.Info("plan ended", zap.String("plan_run_id", run.id), zap.String("status", status), zap.Int("tasks", len(p.Plan.Tasks)), zap.Error(err))
}

// note adds a notification for all who follow the run.
func (r *planRun) note(method string, params any) {
	line, err := jsonrpc.AppendNotification(nil, method, params)
	if err != nil {
		panic(fmt.Sprintf("bridge: encode %s: %v", method, err)) // of strings and numbers
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, planNote{method, line})
	close(r.more)
	r.more = make(chan struct{})
}

// since are the notifications from the nth on, and what is closed when there
// are more.
func (r *planRun) since(n int) ([]planNote, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[n:], r.more
}

// cancelPlan ends a run for good and waits until it has ended. It reports
// whether it ended as cancelled, now or before.
func (s *Server) cancelPlan(ctx context.Context, id string) (bool, error) {
	if !api.ValidPlanID(id) {
		return false, nil
	}
	unlock := s.locks.lock(planLock(id)) // one that is just beginning is there then
	run := s.plans.get(id)
	if run == nil {
		defer unlock()
		status, err := plan.StatusOf(s.planRecord(id))
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

// interruptPlans cuts off all runs; each goes on when it is asked for again.
func (s *Server) interruptPlans() {
	s.plans.mu.Lock()
	defer s.plans.mu.Unlock()
	for _, run := range s.plans.runs {
		run.cancel(plan.ErrInterrupted)
	}
}

// carryTask has a worker do one attempt at a task.
func (s *Server) carryTask(ctx context.Context, crew *crew, st plan.Start, p api.ExecuteTaskParams) (result api.PlanTaskResult, next plan.Next) {
	result = api.PlanTaskResult{TaskID: st.TaskID, Status: api.TaskFailed, AgentID: crew.id(st.Worker), RequestID: st.RequestID}
	fail := func(err error) {
		r := rpc.ToError(err)
		if r.Internal {
			s.log.Error("a task of a plan failed", zap.String("request_id", st.RequestID), zap.Error(err))
		}
		result.Error = &api.TaskError{Code: int(r.Err.Code), Message: r.Err.Message, Type: r.Err.Data.Type, Details: r.Err.Data.Details}
		result.Resumable = !ownFault(err)
	}
	defer func() {
		if p := recover(); p != nil {
			fail(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	a, err := crew.worker(ctx, st.Worker)
	var done api.ExecuteTaskResult
	var why error
	if err == nil {
		done, why, err = s.carryOut(ctx, a, p, st.RequestID)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		if a != nil {
			s.abortTask(ctx, a, st.RequestID)
		}
		result.Status = api.TaskCancelled
	case errors.Is(err, supervisor.ErrNotFound) || errors.Is(why, supervisor.ErrNotFound): // it was destroyed under its task
		fail(cmp.Or(err, error(rpc.AgentNotFound(result.AgentID, rpc.ErrDestroyed))))
		if next = plan.Lost; crew.replace(st.Worker) {
			next = plan.Again
		}
	case errors.Is(why, supervisor.ErrStopped): // by shutdown: the next request starts it
		fail(why)
		next = plan.Again
	case err != nil:
		fail(err)
		if st.Resumed && cutOff(err) {
			next = plan.Again
		}
	default:
		result.Status, result.Result = done.Status, &done
		if st.Resumed && why != nil {
			next = plan.Again
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

// cutOff reports whether a turn ended with its process.
func cutOff(err error) bool {
	_, crashed := errors.AsType[*supervisor.CrashError](err)
	return crashed
}

// abortTask ends the turns of a task whose run is over, unless they go on later.
func (s *Server) abortTask(ctx context.Context, a *supervisor.Agent, id string) {
	if errors.Is(context.Cause(ctx), plan.ErrInterrupted) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	for _, turn := range []string{id, secondTurn(id)} {
		if _, err := a.Abort(ctx, turn); err != nil {
			s.log.Warn("a turn of a plan that was cancelled", zap.String("agent", a.ID()), zap.String("request_id", turn), zap.Error(err))
		}
	}
}

// maxNeed bounds what a task is told of one that it depends on, in bytes.
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
	return api.ExecuteTaskParams{TaskType: t.Type, Prompt: prompt, Context: p.Context, Options: p.Options, TimeoutS: p.TaskTimeoutS}
}

// attemptID is the id of the turn of an attempt.
func attemptID(run, task string, attempt int) string {
	if attempt == 1 {
		return run + "/" + task
	}
	return fmt.Sprintf("%s/%s/%d", run, task, attempt)
}

func resultOf(p api.RunPlanParams, id string, record *plan.Record) api.RunPlanResult {
	result := api.RunPlanResult{PlanRunID: id, Status: record.Status, Resumed: record.Resumed, Tasks: []api.PlanTaskResult{}}
	result.Resumable = record.Again(p.Plan, stops(p), false) != nil
	for _, t := range p.Plan.Tasks {
		result.Tasks = append(result.Tasks, record.Done[t.ID])
	}
	return result
}

// digestOf is what tells two runs of one id apart.
func digestOf(p api.RunPlanParams) (string, error) {
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode a plan: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
