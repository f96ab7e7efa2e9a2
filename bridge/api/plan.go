package api

import (
	"errors"
	"regexp"
	"strings"
)

// The values of on_failure: what run_plan does when a task has failed.
const (
	OnFailureStop     = "stop"     // begin nothing more; the default
	OnFailureContinue = "continue" // go on with what does not depend on it
)

// How a run of a plan ended.
const (
	PlanCompleted = "completed" // all tasks succeeded
	PlanFailed    = "failed"
	PlanCancelled = "cancelled"
	PlanTimedOut  = "timed_out"
)

// How a run is that has not ended, and one whose record cannot be read.
const (
	PlanRunning     = "running"
	PlanInterrupted = "interrupted" // the same run_plan goes on with it
	PlanDamaged     = "damaged"
)

// MaxRuns and DefaultRuns are how many runs list_runs tells of at once.
const (
	MaxRuns     = 256
	DefaultRuns = 50
)

// DefaultPool is the default number of agents in a pool.
const DefaultPool = 2

type (
	// RunPlanParams are a plan and the agents that carry it out: Agents, or else Pool.
	RunPlanParams struct {
		// The plan, as create_plan gives it.
		Plan Plan `json:"plan" audit:"-"`
		// The agents that carry it out, 1 to 16; excludes pool.
		Agents *[]string `json:"agents,omitzero" audit:"-"`
		// Agents that are created for the run and destroyed after it.
		Pool *PlanPool `json:"pool,omitzero" audit:"-"`
		// Context for each task's agent.
		Context *TaskContext `json:"context,omitzero" audit:"-"`
		// How the work is to be done.
		Options *TaskOptions `json:"options,omitzero" audit:"-"`
		// How long the run may take, in seconds. No limit if missing.
		TimeoutS *float64 `json:"timeout_s,omitzero" min:">0" max:"86400" unit:"seconds" audit:"-"`
		// How long the turns of each task may run, in seconds.
		TaskTimeoutS *float64 `json:"task_timeout_s,omitzero" min:">0" max:"86400" unit:"seconds" default:"600" audit:"-"`
		// How often each task is tried where its agent crashes or its model cannot be reached, with pauses, within task_timeout_s.
		Attempts *int `json:"attempts,omitzero" min:"1" max:"10" default:"1" audit:"-"`
		// Names the run: with the same one, a call joins it, continues it or gets its result.
		// 1 to 64 letters, digits, '.', '_' and '-'; a UUID if missing.
		RequestID *string `json:"request_id,omitzero" audit:"text"`
		// What happens when a task has failed: begin no other (stop), or go on with the tasks
		// that do not depend on it (continue).
		OnFailure *string `json:"on_failure,omitzero" enum:"stop,continue" default:"stop" audit:"-"`
		// Whether an ended run tries all tasks again that did not succeed, also cancelled
		// ones.
		Retry *bool `json:"retry,omitzero" default:"false" audit:"-"`
	}
	// PlanPool are agents that are made alike; the members are those of
	// CreateAgentParams. Size is 1 to MaxPool, by default DefaultPool.
	PlanPool struct {
		// How many agents.
		Size *int `json:"size,omitzero" min:"1" max:"16" default:"2"`
		// As of create_agent.
		Preset *string `json:"preset,omitzero"`
		// As of create_agent.
		Cwd *string `json:"cwd,omitzero"`
		// As of create_agent.
		Model *string `json:"model,omitzero"`
		// As of create_agent.
		Provider *string `json:"provider,omitzero"`
		// As of create_agent.
		SystemPrompt *string `json:"system_prompt,omitzero"`
		// As of create_agent.
		Approvals *string `json:"approvals,omitzero" enum:"ask,deny" default:"deny"`
		// As of create_agent, for each of them.
		Limits *Limits `json:"limits,omitzero"`
		// As of create_agent: a kind that names its program.
		Kind *string `json:"kind,omitzero"`
	}
	// RunPlanResult is the result of a run.
	RunPlanResult struct {
		PlanRunID string           `json:"plan_run_id"`                                        // the request_id
		Status    string           `json:"status" enum:"completed,failed,cancelled,timed_out"` // completed, failed, cancelled or timed_out
		Tasks     []PlanTaskResult `json:"tasks"`                                              // in the plan's order
		// Resumed says that a part was done before this request went on with it;
		// Replayed, that the run had ended before this request came.
		Resumed  bool `json:"resumed,omitzero"`
		Replayed bool `json:"replayed,omitzero"`
		// Resumable says that the same request continues with the tasks that did not succeed.
		Resumable bool `json:"resumable,omitzero"`
	}
	// ListRunsParams select a page of the runs of plans.
	ListRunsParams struct {
		// Index of the first run of the page.
		Offset *uint64 `json:"offset,omitzero" default:"0"`
		// How many runs at most.
		Limit *uint64 `json:"limit,omitzero" max:"256" default:"50"`
	}
	// ListRunsResult is a page, the run whose record was written last first.
	ListRunsResult struct {
		Total int       `json:"total"`
		Runs  []PlanRun `json:"runs"`
		// UnreachableNodes are the machines of a cluster whose runs are not among them.
		UnreachableNodes []string `json:"unreachable_nodes,omitzero"`
	}
	// PlanRun is one run of a plan.
	PlanRun struct {
		PlanRunID string  `json:"plan_run_id"`
		Status    string  `json:"status" enum:"running,interrupted,completed,failed,cancelled,timed_out,damaged"`
		Tasks     int     `json:"tasks"`      // of the plan; 0 if that is not recorded
		TasksDone int     `json:"tasks_done"` // those that have ended, however: skipped ones, too
		UpdatedAt float64 `json:"updated_at"` // seconds since 1970
		// Node is the machine of a cluster that has it, in list_runs.
		Node string `json:"node,omitzero"`
	}
	// GetRunParams name a run.
	GetRunParams struct {
		// The run's name: the request_id of its run_plan.
		PlanRunID string `json:"plan_run_id"`
	}
	// GetRunResult is a run with what is carried out, and what has ended of it in the plan's order.
	// Plan is missing in a record of an earlier version.
	GetRunResult struct {
		PlanRun
		Plan        *Plan            `json:"plan,omitzero"`
		TaskResults []PlanTaskResult `json:"task_results"`
	}
	// PlanTaskResult is the result of one task.
	PlanTaskResult struct {
		TaskID string `json:"task_id"`
		Status string `json:"status" enum:"success,failed,cancelled,skipped"`
		// AgentID and RequestID are of the last attempt, "" for a task that was
		// skipped.
		AgentID   string             `json:"agent_id,omitzero" wire:"default"`
		RequestID string             `json:"request_id,omitzero" wire:"default"`
		Result    *ExecuteTaskResult `json:"result,omitzero"`
		Error     *TaskError         `json:"error,omitzero"`
		Reason    string             `json:"reason,omitzero" wire:"default"` // why it was skipped
		// Resumable says that it failed by another cause than its own work.
		Resumable bool `json:"resumable,omitzero" wire:"default"`
	}
	// TaskError is the error that execute_task would have returned.
	TaskError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Type    string `json:"type"`
		Details string `json:"details"`
	}
)

// Agent is what creates one agent of the pool, but for its name.
func (p PlanPool) Agent() CreateAgentParams {
	return CreateAgentParams{Preset: p.Preset, Cwd: p.Cwd, Model: p.Model, Provider: p.Provider, SystemPrompt: p.SystemPrompt, Approvals: p.Approvals, Limits: p.Limits, Kind: p.Kind}
}

// PoolError is an error of the creation of such an agent, whose parameter, if it
// names one, is that of the pool.
func PoolError(err error) error {
	e, ok := errors.AsType[*ParamError](err)
	if !ok {
		return err
	}
	name := "pool." + e.Param
	return &ParamError{Param: name, Problem: strings.Replace(e.Problem, e.Param, name, 1)}
}

// planID is what a run and a task may be called: both become parts of request ids,
// and that of a run one of a path. wantPlanID says so.
var planID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const wantPlanID = "want 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit"

// ValidPlanID reports whether a run of a plan, or a task, may have that id.
func ValidPlanID(id string) bool { return planID.MatchString(id) }

func (p RunPlanParams) check() error {
	if problems := p.Plan.Problems(MaxTasks); problems != nil {
		name := "plan." + problems[0].Param
		return &ParamError{Param: name, Problem: strings.Replace(problems[0].Problem, problems[0].Param, name, 1)}
	}
	if p.RequestID != nil && !ValidPlanID(*p.RequestID) {
		return Invalid("request_id", wantPlanID)
	}
	if err := p.Context.check(); err != nil {
		return err
	}
	return p.checkWho()
}

func (p RunPlanParams) checkWho() error {
	if p.Agents != nil && p.Pool != nil {
		return Invalid("pool", "excludes agents")
	}
	if p.Agents != nil {
		seen := map[string]bool{}
		for _, id := range *p.Agents {
			if !ValidAgentID(id) || seen[id] {
				return Invalid("agents", "want names of agents, each once")
			}
			seen[id] = true
		}
		if n := len(seen); n == 0 || n > MaxPool {
			return Invalid("agents", "want 1 to %d", MaxPool)
		}
	}
	if p.Pool == nil {
		return nil
	}
	if err := p.Pool.Agent().check(); err != nil {
		return PoolError(err)
	}
	return nil
}
