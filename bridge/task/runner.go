package task

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// Runner has agents do tasks. It is safe for concurrent use.
type Runner struct{ Agents *agents.Registry }

// Run has an agent do a task, in one turn or two. why is the reason of one
// that was cancelled.
func (r Runner) Run(ctx context.Context, a *supervisor.Agent, p api.ExecuteTaskParams, id string) (result api.ExecuteTaskResult, why, err error) {
	result = api.ExecuteTaskResult{
		Status:   api.TaskCancelled,
		Output:   api.TaskOutput{FilesModified: []string{}, FilesCreated: []string{}},
		Metadata: api.TaskMetadata{AgentID: a.ID(), RequestID: id},
	}
	answer, cost, err := Ask(ctx, r, a, Prompt{ID: id, Text: ExecutePrompt(p), Timeout: Timeout(p.TimeoutS)}, ReadAnswer)
	if err != nil {
		return result, nil, err
	}
	result.Replayed = cost.Replayed
	result.Metadata.ExecutionTimeMS = cost.Elapsed.Milliseconds()
	result.Metadata.TokensUsed = cost.Usage.InputTokens + cost.Usage.OutputTokens
	result.Metadata.Model, result.Metadata.Repaired = protocol.Value(cost.Usage.Model), cost.Repaired
	if u := a.Info().Update; result.Metadata.Model == "" && u != nil {
		result.Metadata.Model = u.Model
	}
	if result.Output.FilesModified, result.Output.FilesCreated, err = r.filesOf(ctx, a, cost.Turns); err != nil {
		return result, cost.Cancelled, err
	}
	if cost.Cancelled == nil {
		result.Status, result.Output.Code, result.Output.Explanation = answer.Status, answer.Code, answer.Explanation
	}
	return result, cost.Cancelled, nil
}

// Prompt is what an agent is asked for that is to answer in a declared shape.
type Prompt struct {
	ID      string // of the first turn
	Text    string
	Timeout time.Duration // for both turns together
}

// cost is what an Prompt took.
type Cost struct {
	Turns     []string // ids
	Usage     protocol.TurnUsage
	Elapsed   time.Duration
	Repaired  bool
	Replayed  bool  // all of it had ended before
	Cancelled error // why, if it was; then there is no answer
}

// SecondTurn is the id of the turn that asks again.
func SecondTurn(id string) string { return id + "/again" }

// Begin begins the turn of a prompt, whose answer nobody reads.
func (r Runner) Begin(ctx context.Context, a *supervisor.Agent, e Prompt) (*supervisor.Turn, error) {
	turn, err := a.Prompt(ctx, protocol.Prompt{ID: e.ID, Message: e.Text}, supervisor.PromptOptions{Timeout: e.Timeout})
	return turn, agents.Destroyed(a.ID(), err)
}

// Ask puts a prompt and, where its answer is not of the shape, asks once
// more. The errors are those of a turn, that of badAnswer, and that of ctx; the
// turn goes on then.
func Ask[T any](ctx context.Context, r Runner, a *supervisor.Agent, e Prompt, read func(string) (T, error)) (answer T, c Cost, err error) {
	start := time.Now()
	defer func() { c.Elapsed = time.Since(start) }()
	c.Replayed = true
	for first := true; ; first = false {
		turn, err := r.Begin(ctx, a, e)
		if err != nil {
			return answer, c, err
		}
		c.Turns = append(c.Turns, e.ID)
		outcome, err := turn.Wait(ctx)
		c.Usage.Add(outcome.Usage)
		c.Replayed = c.Replayed && outcome.Replayed
		switch {
		case outcome.Outcome == supervisor.Cancelled && (outcome.Replayed || !errors.Is(err, supervisor.ErrDraining)):
			if c.Cancelled = err; err == nil {
				c.Cancelled = supervisor.ErrAborted
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
		if outcome.StopReason == protocol.StopMaxTokens || outcome.StopReason == protocol.StopContentFilter {
			err = fmt.Errorf("%w; the model's service cut the answer off (%s)", err, outcome.StopReason)
		}
		left := e.Timeout - time.Since(start)
		switch {
		case !first:
			return answer, c, badAnswer(err.Error())
		case left <= 0:
			return answer, c, fmt.Errorf("no time is left to ask again after an answer that could not be used (%w): %w", err, supervisor.ErrTurnTimeout)
		}
		c.Repaired = true
		e = Prompt{ID: SecondTurn(e.ID), Text: RepairPrompt(err), Timeout: left}
	}
}

// filesOf are the files that the tools of these turns have recorded, from the
// agent's own conversation, absolute and sorted. It reads backwards, to the
// prompt of the first turn.
func (r Runner) filesOf(ctx context.Context, a *supervisor.Agent, turns []string) (modified, created []string, err error) {
	const window = 64 // messages
	changed, isNew := map[string]bool{}, map[string]bool{}
	end, err := r.countMessages(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	for begun := false; end > 0 && !begun; end -= min(end, window) {
		for at := end - min(end, window); at < end; {
			limit := end - at
			page, err := r.messages(ctx, a, protocol.GetMessages{Offset: &at, Limit: &limit})
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

func (r Runner) countMessages(ctx context.Context, a *supervisor.Agent) (uint64, error) {
	none := uint64(0)
	page, err := agents.Ask(ctx, r.Agents, a, protocol.GetMessages{Limit: &none})
	return page.Total, err
}

// messages are those of a page.
func (r Runner) messages(ctx context.Context, a *supervisor.Agent, get protocol.GetMessages) ([]protocol.Message, error) {
	page, err := agents.Ask(ctx, r.Agents, a, get)
	if err != nil {
		return nil, err
	}
	var list []protocol.Message
	if err := strict.Fill(page.Messages, &list, strict.IgnoreUnknown); err != nil {
		return nil, &supervisor.ChildError{Command: get.Name(), Message: "the child's messages cannot be read: " + err.Error(), Unreadable: err}
	}
	return list, nil
}

func RequestID(given *string) string {
	if given == nil {
		return uuid.NewString()
	}
	return *given
}

// timeout is that of a task, in whole nanoseconds, rounded up.
func Timeout(seconds *float64) time.Duration {
	if seconds == nil {
		return api.DefaultTaskTimeout * time.Second
	}
	return time.Duration(math.Ceil(*seconds * float64(time.Second)))
}

// badAnswer says that an agent did its turn and did not answer in the declared
// shape, also when it was asked again.
func badAnswer(problem string) error {
	return &api.Error{
		Kind: api.KindExecutionError, Details: "the agent's answer is not of the declared shape: " + problem,
		Suggestions: []string{"Ask again with a new request_id, or another agent or model."},
	}
}
