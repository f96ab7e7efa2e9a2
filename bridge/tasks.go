package bridge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// Role is what an agent is for (SPEC §6.7).
type Role string

// The roles that a configuration can give.
const (
	Planner  Role = "planner"
	Executor Role = "executor"
)

// badAnswer says that an agent did its turn and did not answer in the declared
// shape, also when it was asked again.
func badAnswer(problem string) error {
	return &api.Error{
		Kind: api.KindExecutionError, Details: "the agent's answer is not of the declared shape: " + problem,
		Suggestions: []string{"Ask again with a new request_id, or another agent or model."},
	}
}

// taskAgent is who is to do what c asks for: the agent of the path, the one that
// is named, or the one that has the role, which is created if there is none.
func (s *Server) taskAgent(ctx context.Context, c *rpc.Call, role Role, named *string) (*supervisor.Agent, error) {
	if c.Agent != "" {
		if named != nil && *named != c.Agent {
			return nil, api.Invalid("agent_id", "is not the agent of the path, %s", c.Agent)
		}
		return s.agent(ctx, c.Agent)
	}
	if named != nil {
		return s.agent(ctx, *named)
	}
	p, ok := s.settings.Load().Roles[role]
	if !ok {
		return nil, &api.Error{
			Kind: api.KindRoleNotConfigured, Details: fmt.Sprintf("no agent is configured as %s", role),
			Suggestions: []string{fmt.Sprintf("Name an agent by agent_id, or one for roles.%s in config.json, and start the server again.", role)},
		}
	}
	if err := s.checkRole(role, *p.AgentID); err != nil {
		return nil, err
	}
	a, err := s.agent(ctx, *p.AgentID)
	if errors.Is(err, supervisor.ErrNotFound) {
		a, err = s.createFor(ctx, c, p)
	}
	if errors.Is(err, supervisor.ErrExists) { // somebody was faster
		a, err = s.agent(ctx, *p.AgentID)
	}
	return a, err
}

func (s *Server) executeTask(ctx context.Context, c *rpc.Call, p api.ExecuteTaskParams) (api.ExecuteTaskResult, error) {
	a, err := s.taskAgent(ctx, c, Executor, p.AgentID)
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	s.used(a)
	if c.Request.IsNotification() {
		_, err := s.begin(ctx, a, errand{id: requestID(p.RequestID), prompt: task.ExecutePrompt(p), timeout: timeout(p.TimeoutS)})
		return api.ExecuteTaskResult{}, err
	}
	result, _, err := s.carryOut(ctx, a, p, requestID(p.RequestID))
	c.Incarnation = a.Info().Incarnation
	if err != nil {
		return api.ExecuteTaskResult{}, err
	}
	return result, nil
}

// carryOut has an agent do a task, in one turn or two. why is the reason of one
// that was cancelled.
func (s *Server) carryOut(ctx context.Context, a *supervisor.Agent, p api.ExecuteTaskParams, id string) (result api.ExecuteTaskResult, why, err error) {
	result = api.ExecuteTaskResult{
		Status:   api.TaskCancelled,
		Output:   api.TaskOutput{FilesModified: []string{}, FilesCreated: []string{}},
		Metadata: api.TaskMetadata{AgentID: a.ID(), RequestID: id},
	}
	answer, cost, err := converse(ctx, s, a, errand{id: id, prompt: task.ExecutePrompt(p), timeout: timeout(p.TimeoutS)}, task.ReadAnswer)
	if err != nil {
		return result, nil, err
	}
	result.Replayed = cost.replayed
	result.Metadata.ExecutionTimeMS = cost.elapsed.Milliseconds()
	result.Metadata.TokensUsed = cost.usage.InputTokens + cost.usage.OutputTokens
	result.Metadata.Model, result.Metadata.Repaired = protocol.Value(cost.usage.Model), cost.repaired
	if u := a.Info().Update; result.Metadata.Model == "" && u != nil {
		result.Metadata.Model = u.Model
	}
	if result.Output.FilesModified, result.Output.FilesCreated, err = s.filesOf(ctx, a, cost.turns); err != nil {
		return result, cost.cancelled, err
	}
	if cost.cancelled == nil {
		result.Status, result.Output.Code, result.Output.Explanation = answer.Status, answer.Code, answer.Explanation
	}
	return result, cost.cancelled, nil
}

func (s *Server) createPlan(ctx context.Context, c *rpc.Call, p api.CreatePlanParams) (api.CreatePlanResult, error) {
	a, err := s.taskAgent(ctx, c, Planner, p.AgentID)
	if err != nil {
		return api.CreatePlanResult{}, err
	}
	s.used(a)
	most, limit := api.MaxTasks, task.TimeLimit(p)
	if p.Constraints != nil && p.Constraints.MaxTasks != nil {
		most = *p.Constraints.MaxTasks
	}
	if p.TimeoutS == nil && limit > 0 {
		p.TimeoutS = &limit
	}
	e := errand{id: requestID(p.RequestID), prompt: task.PlanPrompt(p, most), timeout: timeout(p.TimeoutS)}
	if c.Request.IsNotification() {
		_, err := s.begin(ctx, a, e)
		return api.CreatePlanResult{}, err
	}
	plan, cost, err := converse(ctx, s, a, e, func(reply string) (api.Plan, error) { return task.ReadPlan(reply, most, limit) })
	c.Incarnation = a.Info().Incarnation
	switch {
	case err != nil:
		return api.CreatePlanResult{}, err
	case cost.cancelled != nil:
		return api.CreatePlanResult{}, &api.Error{
			Kind: api.KindCancelled, Details: "the making of the plan was cancelled: " + supervisor.ErrAborted.Error(), Err: supervisor.ErrAborted,
			Suggestions: []string{"Ask again with a new request_id."},
		}
	}
	return api.CreatePlanResult{Plan: plan, Replayed: cost.replayed}, nil
}

// errand is what an agent is asked for that is to answer in a declared shape.
type errand struct {
	id      string // of the first turn
	prompt  string
	timeout time.Duration // for both turns together
}

// cost is what an errand took.
type cost struct {
	turns     []string // ids
	usage     protocol.TurnUsage
	elapsed   time.Duration
	repaired  bool
	replayed  bool  // all of it had ended before
	cancelled error // why, if it was; then there is no answer
}

// secondTurn is the id of the turn that asks again.
func secondTurn(id string) string { return id + "/again" }

func (s *Server) begin(ctx context.Context, a *supervisor.Agent, e errand) (*supervisor.Turn, error) {
	turn, _, err := following(ctx, s, a, func(a *supervisor.Agent) (*supervisor.Turn, error) {
		return a.Prompt(ctx, protocol.Prompt{ID: e.id, Message: e.prompt}, supervisor.PromptOptions{Timeout: e.timeout})
	})
	return turn, err
}

// converse runs an errand and, where its answer is not of the shape, asks once
// more. The errors are those of a turn, that of badAnswer, and that of ctx; the
// turn goes on then.
func converse[T any](ctx context.Context, s *Server, a *supervisor.Agent, e errand, read func(string) (T, error)) (answer T, c cost, err error) {
	start := time.Now()
	defer func() { c.elapsed = time.Since(start) }()
	c.replayed = true
	for first := true; ; first = false {
		turn, err := s.begin(ctx, a, e)
		if err != nil {
			return answer, c, err
		}
		c.turns = append(c.turns, e.id)
		outcome, err := turn.Wait(ctx)
		c.usage.Add(outcome.Usage)
		c.replayed = c.replayed && outcome.Replayed
		switch {
		case outcome.Outcome == supervisor.Cancelled && (outcome.Replayed || !errors.Is(err, supervisor.ErrDraining)):
			if c.cancelled = err; err == nil {
				c.cancelled = supervisor.ErrAborted
			}
			return answer, c, nil
		case err != nil:
			return answer, c, err
		case outcome.Truncated:
			return answer, c, badAnswer("it is longer than what is kept of it")
		}
		answer, err = read(outcome.Text)
		if err == nil {
			return answer, c, nil
		}
		left := e.timeout - time.Since(start)
		switch {
		case !first:
			return answer, c, badAnswer(err.Error())
		case left <= 0:
			return answer, c, fmt.Errorf("no time is left to ask again after an answer that could not be used (%w): %w", err, supervisor.ErrTurnTimeout)
		}
		c.repaired = true
		e = errand{id: secondTurn(e.id), prompt: task.RepairPrompt(err), timeout: left}
	}
}

// filesOf are the files that the tools of these turns have recorded, from the
// agent's own conversation, absolute and sorted. It reads backwards, to the
// prompt of the first turn.
func (s *Server) filesOf(ctx context.Context, a *supervisor.Agent, turns []string) (modified, created []string, err error) {
	const window = 64 // messages
	changed, isNew := map[string]bool{}, map[string]bool{}
	end, err := s.countMessages(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	for begun := false; end > 0 && !begun; end -= min(end, window) {
		for at := end - min(end, window); at < end; {
			limit := end - at
			page, err := s.messages(ctx, a, protocol.GetMessages{Offset: &at, Limit: &limit})
			if err != nil {
				return nil, nil, err
			}
			if len(page) == 0 {
				break // the conversation has become shorter
			}
			at += uint64(len(page))
			for _, m := range page {
				begun = begun || m.TurnID == turns[0] && m.Role == protocol.RoleUser
				if !slices.Contains(turns, m.TurnID) {
					continue
				}
				for _, path := range m.Changed {
					changed[path] = true
				}
				for _, path := range m.Created {
					isNew[path] = true
				}
			}
		}
	}
	modified, created = []string{}, []string{}
	for path := range changed {
		if isNew[path] {
			created = append(created, path)
		} else {
			modified = append(modified, path)
		}
	}
	slices.Sort(modified)
	slices.Sort(created)
	return modified, created, nil
}

func (s *Server) countMessages(ctx context.Context, a *supervisor.Agent) (uint64, error) {
	none := uint64(0)
	page, err := ask(ctx, s, a, protocol.GetMessages{Limit: &none})
	return page.Total, err
}

// messages are those of a page.
func (s *Server) messages(ctx context.Context, a *supervisor.Agent, get protocol.GetMessages) ([]protocol.Message, error) {
	page, err := ask(ctx, s, a, get)
	if err != nil {
		return nil, err
	}
	var list []protocol.Message
	if err := strict.Fill(page.Messages, &list, strict.IgnoreUnknown); err != nil {
		return nil, &supervisor.ChildError{Command: get.Name(), Message: "the child's messages cannot be read: " + err.Error(), Unreadable: err}
	}
	return list, nil
}

func requestID(given *string) string {
	if given == nil {
		return uuid.NewString()
	}
	return *given
}

// timeout is that of a task, in whole nanoseconds, rounded up.
func timeout(seconds *float64) time.Duration {
	if seconds == nil {
		return api.DefaultTaskTimeout * time.Second
	}
	return time.Duration(math.Ceil(*seconds * float64(time.Second)))
}
