package methods

import (
	"context"
	"errors"
	"fmt"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/supervisor"
)

// Role is what an agent is for (SPEC §6.7).
type Role string

// The roles that a configuration can give.
const (
	Planner  Role = "planner"
	Executor Role = "executor"
)

// taskAgent is who is to do what c asks for: the agent of the path, the one that
// is named, or the one that has the role, which is created if there is none.
func (m *taskMethods) taskAgent(ctx context.Context, c *rpc.Call, role agents.Role, named *string) (*supervisor.Agent, error) {
	if c.Agent != "" {
		if named != nil && *named != c.Agent {
			return nil, api.Invalid("agent_id", "is not the agent of the path, %s", c.Agent)
		}
		return m.agents.Resolve(ctx, c.Agent)
	}
	if named != nil {
		return m.agents.Resolve(ctx, *named)
	}
	p, ok := m.agents.Role(role)
	if !ok {
		return nil, &api.Error{
			Kind: api.KindRoleNotConfigured, Details: fmt.Sprintf("no agent is configured as %s", role),
			Suggestions: []string{fmt.Sprintf("Name an agent by agent_id, or configure roles.%s in config.json and send SIGHUP to the server: it reloads the file.", role)},
		}
	}
	if err := m.agents.CheckRole(role, *p.AgentID); err != nil {
		return nil, err
	}
	a, err := m.agents.Resolve(ctx, *p.AgentID)
	if errors.Is(err, supervisor.ErrNotFound) {
		a, err = m.agents.CreateFor(ctx, c, p)
	}
	if errors.Is(err, supervisor.ErrExists) { // somebody was faster
		a, err = m.agents.Resolve(ctx, *p.AgentID)
	}
	return a, err
}

func (m *taskMethods) execute(ctx context.Context, c *rpc.Call, p api.ExecuteTaskParams) (api.ExecuteTaskResult, error) {
	a, err := m.taskAgent(ctx, c, agents.Executor, p.AgentID)
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	m.agents.NoteUsed(a)
	if c.Request.IsNotification() {
		_, err := m.tasks.Begin(ctx, a, task.Prompt{ID: task.RequestID(p.RequestID), Text: task.ExecutePrompt(p), Timeout: task.Timeout(p.TimeoutS)})
		return api.ExecuteTaskResult{}, err
	}
	result, _, err := m.tasks.Run(ctx, a, p, task.RequestID(p.RequestID))
	c.Incarnation = a.Info().Incarnation
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	return result, nil
}

func (m *taskMethods) createPlan(ctx context.Context, c *rpc.Call, p api.CreatePlanParams) (api.CreatePlanResult, error) {
	a, err := m.taskAgent(ctx, c, agents.Planner, p.AgentID)
	if err != nil {
		return api.CreatePlanResult{}, err
	}
	m.agents.NoteUsed(a)
	most, limit := api.MaxTasks, task.TimeLimit(p)
	if p.Constraints != nil && p.Constraints.MaxTasks != nil {
		most = *p.Constraints.MaxTasks
	}
	if p.TimeoutS == nil && limit > 0 {
		p.TimeoutS = &limit
	}
	e := task.Prompt{ID: task.RequestID(p.RequestID), Text: task.PlanPrompt(p, most), Timeout: task.Timeout(p.TimeoutS)}
	if c.Request.IsNotification() {
		_, err := m.tasks.Begin(ctx, a, e)
		return api.CreatePlanResult{}, err
	}
	plan, cost, err := task.Ask(ctx, m.tasks, a, e, func(reply string) (api.Plan, error) { return task.ReadPlan(reply, most, limit) })
	c.Incarnation = a.Info().Incarnation
	switch {
	case err != nil:
		return api.CreatePlanResult{}, err
	case cost.Cancelled != nil:
		return api.CreatePlanResult{}, &api.Error{
			Kind: api.KindCancelled, Details: "the making of the plan was cancelled: " + supervisor.ErrAborted.Error(), Err: supervisor.ErrAborted,
			Suggestions: []string{"Ask again with a new request_id."},
		}
	}
	return api.CreatePlanResult{Plan: plan, Replayed: cost.Replayed}, nil
}
