package methods

import (
	"context"
	"errors"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Role is what an agent is for (SPEC §6.7).
type Role string

// The roles that a configuration can give.
const (
	Planner  Role = "planner"
	Executor Role = "executor"
)

// namedAgent is the agent that is to do what c asks for: that of the path, or the one that is named;
// nil if that is left to the role.
func (m *taskMethods) namedAgent(ctx context.Context, c *rpc.Call, named *string) (*supervisor.Agent, error) {
	id := c.Agent
	switch {
	case id == "" && named == nil:
		return nil, nil //nolint:nilnil // nobody is named
	case id == "":
		id = *named
	case named != nil && *named != id:
		return nil, api.Invalid("agent_id", "is not the agent of the path, %s", id)
	}
	a, err := m.agents.Resolve(ctx, id)
	if err == nil {
		m.agents.NoteUsed(a)
	}
	return a, err
}

// ofRole makes agents for the tasks of a role.
type ofRole struct {
	agents *agents.Registry
	call   *rpc.Call
	role   agents.Role
	dir    *string // where the agent is to work; nil for where the role does
}

// Start implements [task.Starter]. Where there is a session of the role's name, the agent begins
// with a copy of it.
func (o ofRole) Start(ctx context.Context, name string) (*supervisor.Agent, error) {
	p := o.agents.Role(o.role)
	if base := *p.AgentID; o.agents.Sessions().Exists(base) {
		if err := o.agents.CheckRole(o.role, base); err != nil {
			return nil, err
		}
		return agents.LoadIn(ctx, o.agents, o.call, base, name, o.dir)
	}
	if err := agents.CheckDir(p, o.dir); err != nil {
		return nil, err
	}
	p.AgentID = &name
	a, err := agents.CreateIn(ctx, o.agents, o.call, p, o.dir)
	return a, agents.DirError(err, o.dir)
}

// streamed has a task done, and tells of it as it goes if out is not nil; a is nil if it has an
// agent of its own.
func streamed[R any](ctx context.Context, m *taskMethods, out *rpc.Stream, id string, a *supervisor.Agent, do func(context.Context) (R, error)) (R, error) {
	if out == nil {
		return do(ctx)
	}
	agent := ""
	if a != nil {
		agent = a.ID()
	}
	return task.Stream(ctx, m.tasks, out, id, agent, do)
}

func (m *taskMethods) execute(ctx context.Context, c *rpc.Call, p api.ExecuteTaskParams, out *rpc.Stream) (api.ExecuteTaskResult, error) {
	a, err := m.namedAgent(ctx, c, p.AgentID)
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	if a != nil {
		if err := agents.CheckIn(ctx, m.agents, a, protocol.Value(p.Context).CurrentDirectory); err != nil {
			return api.ExecuteTaskResult{}, err
		}
	}
	id := task.RequestID(p.RequestID)
	return streamed(ctx, m, out, id, a, func(ctx context.Context) (api.ExecuteTaskResult, error) { return m.executeBy(ctx, c, a, p, id) })
}

// executeBy has an agent do a task; if a is nil, one of its own.
func (m *taskMethods) executeBy(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.ExecuteTaskParams, id string) (api.ExecuteTaskResult, error) {
	switch {
	case a == nil:
		p.RequestID = nil
		done, err := task.Own(ctx, m.tasks, c, task.OwnTask{ID: id, Method: api.ExecuteTask.Name, Params: p}, ofRole{m.agents, c, agents.Executor, protocol.Value(p.Context).CurrentDirectory},
			func(ctx context.Context, a *supervisor.Agent) (api.ExecuteTaskResult, bool, error) {
				result, why, err := m.tasks.Run(ctx, a, p, id, "")
				if err == nil && (errors.Is(why, supervisor.ErrStopped) || errors.Is(why, supervisor.ErrNotFound)) {
					err = why // its agent was stopped or destroyed: nobody cancelled the task
				}
				return result, why != nil, err
			})
		done.Result.Replayed = done.Replayed
		return done.Result, err
	case c.Request.IsNotification():
		_, err := m.tasks.Begin(ctx, a, task.Prompt{ID: id, Text: task.ExecutePrompt(p, id), Timeout: task.Timeout(p.TimeoutS), Limited: c.Limited()})
		return api.ExecuteTaskResult{}, err
	}
	result, _, err := m.tasks.Run(ctx, a, p, id, c.Limited())
	c.Incarnation = a.Info().Incarnation
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	return result, nil
}

func (m *taskMethods) createPlan(ctx context.Context, c *rpc.Call, p api.CreatePlanParams, out *rpc.Stream) (api.CreatePlanResult, error) {
	a, err := m.namedAgent(ctx, c, p.AgentID)
	if err != nil {
		return api.CreatePlanResult{}, err
	}
	id := task.RequestID(p.RequestID)
	return streamed(ctx, m, out, id, a, func(ctx context.Context) (api.CreatePlanResult, error) { return m.planBy(ctx, c, a, p, id) })
}

// planBy has an agent make a plan; if a is nil, one of its own.
func (m *taskMethods) planBy(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.CreatePlanParams, id string) (result api.CreatePlanResult, err error) {
	most, limit := api.MaxTasks, task.TimeLimit(p)
	if p.Constraints != nil && p.Constraints.MaxTasks != nil {
		most = *p.Constraints.MaxTasks
	}
	if p.TimeoutS == nil && limit > 0 {
		p.TimeoutS = &limit
	}
	e := task.Prompt{ID: id, Text: task.PlanPrompt(p, most), Timeout: task.Timeout(p.TimeoutS), Attempts: protocol.Value(p.Attempts), Limited: c.Limited()}
	ask := func(ctx context.Context, a *supervisor.Agent) (result api.CreatePlanResult, cancelled bool, err error) {
		var cost task.Cost
		result.Plan, cost, err = task.Ask(ctx, m.tasks, a, e, func(reply string) (api.Plan, error) { return task.ReadPlan(reply, most, limit) })
		result.Replayed = cost.Replayed
		return result, cost.Cancelled != nil, err
	}
	var cancelled bool
	switch {
	case a == nil:
		p.RequestID = nil
		done, err := task.Own(ctx, m.tasks, c, task.OwnTask{ID: e.ID, Method: api.CreatePlan.Name, Params: p}, ofRole{m.agents, c, agents.Planner, nil}, ask)
		if err != nil || c.Request.IsNotification() {
			return api.CreatePlanResult{}, err
		}
		result, cancelled = done.Result, done.Cancelled
		result.Replayed = done.Replayed
	case c.Request.IsNotification():
		_, err := m.tasks.Begin(ctx, a, e)
		return api.CreatePlanResult{}, err
	default:
		result, cancelled, err = ask(ctx, a)
		c.Incarnation = a.Info().Incarnation
		if err != nil {
			return api.CreatePlanResult{}, err
		}
	}
	if cancelled {
		return api.CreatePlanResult{}, &api.Error{
			Kind: api.KindCancelled, Details: "the making of the plan was cancelled: " + supervisor.ErrAborted.Error(), Err: supervisor.ErrAborted,
			Suggestions: []string{"Ask again with a new request_id."},
		}
	}
	return result, nil
}
