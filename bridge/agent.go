package bridge

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (s *Server) send(ctx context.Context, c *call, p api.SendParams) (any, error) {
	if c.from != nil {
		return s.sendFor(ctx, c, p)
	}
	c.request.Params = nil // while it waits its text is there once
	a, err := s.agent(ctx, c.id)
	if err != nil {
		return nil, err
	}
	s.used(a)
	return s.sendTo(ctx, c, a, p)
}

// sendTo sends and waits for the answer, unless c is a notification.
func (s *Server) sendTo(ctx context.Context, c *call, a *supervisor.Agent, p api.SendParams) (api.SendResult, error) {
	onDisconnect := protocol.Value(p.OnDisconnect)
	turn, a, err := s.prompt(ctx, a, p)
	if err != nil {
		return api.SendResult{}, err
	}
	if c.request.IsNotification() {
		return api.SendResult{RequestID: turn.ID()}, nil // nobody waits for more
	}
	sent, err := await(ctx, c, turn)
	if gone(ctx) {
		s.left(ctx, a.ID(), turn, onDisconnect)
	}
	return sent, err
}

// await waits for the outcome of a turn. Where ctx ends first, the error is why,
// in a *turnError without outcome.
func await(ctx context.Context, c *call, turn *supervisor.Turn) (api.SendResult, error) {
	outcome, err := turn.Wait(ctx)
	c.incarnation = outcome.Incarnation
	if outcome.Outcome == "" {
		err = context.Cause(ctx)
	}
	return sendResult(outcome, err)
}

// left cancels the turn of a client that left, if it asked for that, and returns
// when the turn has ended.
func (s *Server) left(ctx context.Context, id string, turn *supervisor.Turn, onDisconnect string) {
	if onDisconnect != api.OnDisconnectCancel {
		return
	}
	a, err := s.o.Supervisor.Agent(id)
	if err != nil {
		return // and so is the turn
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.CommandTimeout)
	defer cancel()
	if _, err := a.Abort(ctx, turn.ID()); err != nil {
		s.log.Warn("turn of a client that left is not cancelled", zap.String("agent", id), zap.Error(err))
	}
}

// accept hands the message to its agent.
func (s *Server) accept(ctx context.Context, c *call, p api.SendParams) (*supervisor.Turn, error) {
	a, err := s.agent(ctx, c.id)
	if err != nil {
		return nil, err
	}
	s.used(a)
	turn, a, err := s.prompt(ctx, a, p)
	if err == nil {
		c.id = a.ID()
	}
	return turn, err
}

// prompt sends, and returns the agent that took it.
func (s *Server) prompt(ctx context.Context, a *supervisor.Agent, p api.SendParams) (*supervisor.Turn, *supervisor.Agent, error) {
	prompt, options := promptOf(p)
	turn, a, err := following(ctx, s, a, func(a *supervisor.Agent) (*supervisor.Turn, error) { return a.Prompt(ctx, prompt, options) })
	if errors.Is(err, supervisor.ErrDraining) {
		err = errNotAccepted
	}
	return turn, a, err
}

// promptOf is a send as the supervisor takes it.
func promptOf(p api.SendParams) (protocol.Prompt, supervisor.PromptOptions) {
	prompt := protocol.Prompt{ID: protocol.Value(p.RequestID), Message: p.Content, Attachments: protocol.Value(p.Attachments)}
	prompt.Source, prompt.SourceAgentID = protocol.Value(p.Source), protocol.Value(p.SourceAgentID)
	if prompt.ID == "" {
		prompt.ID = uuid.NewString()
	}
	// Rounded up: 0 would mean no limit at all.
	options := supervisor.PromptOptions{Timeout: time.Duration(math.Ceil(protocol.Value(p.TimeoutS) * float64(time.Second)))}
	options.Retry = protocol.Value(p.OnCrash) == api.OnCrashRetry
	switch protocol.Value(p.WhenBusy) {
	case api.WhenBusyReject:
		options.WhenBusy = supervisor.Reject
	case api.WhenBusySteer:
		options.WhenBusy = supervisor.Steer
	default:
		options.WhenBusy = supervisor.Queue
	}
	return prompt, options
}

// sendResult is what send returns for the outcome of a turn.
func sendResult(r supervisor.Result, err error) (api.SendResult, error) {
	if r.Outcome == supervisor.Cancelled && (r.Replayed || !errors.Is(err, supervisor.ErrDraining)) {
		return api.SendResult{RequestID: r.TurnID, Cancelled: true, Replayed: r.Replayed}, nil
	}
	if err != nil {
		return api.SendResult{}, &turnError{err: err, outcome: r.Outcome, said: r.Text, replayed: r.Replayed}
	}
	sent := api.SendResult{
		Content: &r.Text, RequestID: r.TurnID, StopReason: string(r.StopReason), Usage: &r.Usage,
		Truncated: r.Truncated, Replayed: r.Replayed,
	}
	if r.Attempt > 1 {
		sent.Attempt = r.Attempt
	}
	return sent, nil
}

func (s *Server) cancel(ctx context.Context, c *call, p api.CancelParams) (any, error) {
	result := api.CancelResult{RequestID: p.RequestID}
	if c.id == "" {
		cancelled, err := s.cancelPlan(ctx, p.RequestID)
		if err != nil {
			return nil, err
		}
		if result.Cancelled = cancelled; !cancelled {
			result.Reason = "not_found_or_completed"
		}
		return result, nil
	}
	var err error
	if p.RequestID != "" {
		result.Cancelled, err = s.abort(ctx, c.id, p.RequestID)
	}
	if !result.Cancelled {
		result.Reason = "not_found_or_completed"
	}
	return result, err
}

// abort cancels a send and reports whether it ended as cancelled. An agent that
// does not run has nothing to cancel and is not started: what it did is on record.
func (s *Server) abort(ctx context.Context, id, requestID string) (bool, error) {
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		return a.Abort(ctx, requestID)
	}
	unlock := s.locks.lock(id) // nobody starts it meanwhile
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		unlock()
		return a.Abort(ctx, requestID)
	}
	defer unlock()
	outcome, err := s.o.Outcome(id, requestID)
	return outcome == supervisor.Cancelled, err
}

func (s *Server) shutdown(ctx context.Context, c *call, _ api.None) (any, error) {
	// The same holds here: what does not run is shut down already.
	if a, err := s.o.Supervisor.Agent(c.id); err == nil {
		if err := a.Shutdown(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	return api.SuccessResult{Success: true}, nil
}

// state asks an agent's process for what it knows about itself.
func (s *Server) state(ctx context.Context, c *call) (protocol.State, error) {
	return askID(ctx, s, c, protocol.GetState{})
}

// askID is ask for the agent of a call, which is started if need be.
func askID[R any](ctx context.Context, s *Server, c *call, command protocol.Request[R]) (R, error) {
	a, err := s.agent(ctx, c.id)
	if err != nil {
		var none R
		return none, err
	}
	c.incarnation = a.Info().Incarnation
	return ask(ctx, s, a, command)
}

// ask gives an agent's process one command and returns its answer.
func ask[R any](ctx context.Context, s *Server, a *supervisor.Agent, command protocol.Request[R]) (R, error) {
	return askFor(ctx, s, a, command, s.o.CommandTimeout)
}

// askFor is ask for a command that may take its time.
func askFor[R any](ctx context.Context, s *Server, a *supervisor.Agent, command protocol.Request[R], patience time.Duration) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, _, err := following(ctx, s, a, func(a *supervisor.Agent) (R, error) { return supervisor.Do(ctx, a, command) })
	return answer, err
}

func (s *Server) getTokens(ctx context.Context, c *call, _ api.None) (any, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	return api.GetTokensResult(state.Tokens), nil
}

func (s *Server) getContext(ctx context.Context, c *call, _ api.None) (any, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	return api.GetContextResult{
		MessageCount: state.MessageCount, SystemPrompt: state.SystemPrompt != "", SessionID: state.SessionID,
		Model: state.Model, Provider: state.Provider, Cwd: state.Cwd, PermissionLevel: state.Preset,
		HaltedAtIterationLimit: state.HaltedAtIterationLimit, Usage: state.Usage, Cost: state.Cost,
	}, nil
}

// getMessages passes on a page as the child wrote it.
func (s *Server) getMessages(ctx context.Context, c *call, p api.GetMessagesParams) (any, error) {
	return askID(ctx, s, c, protocol.GetMessages{Offset: p.Offset, Limit: p.Limit})
}

func (s *Server) getModel(ctx context.Context, c *call, _ api.None) (any, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	return api.GetModelResult{Model: state.Model, Provider: state.Provider, Reasoning: state.Reasoning}, nil
}

func (s *Server) setModel(ctx context.Context, c *call, p api.SetModelParams) (any, error) {
	if p.Model == "" {
		return nil, api.Invalid("model", "is empty")
	}
	set, err := askID(ctx, s, c, protocol.SetModel{Model: p.Model})
	if err != nil {
		return nil, refusedChange(c, "model", protocol.SetModel{}, err)
	}
	return api.SetModelResult{Updated: true, Model: cmp.Or(set.Model, p.Model)}, nil
}

// compactPatience is how long a summary may be in the making.
const compactPatience = 10 * time.Minute

func (s *Server) compact(ctx context.Context, c *call, p api.CompactParams) (any, error) {
	a, err := s.agent(ctx, c.id)
	if err != nil {
		return nil, err
	}
	c.incarnation = a.Info().Incarnation
	done, err := askFor(ctx, s, a, protocol.Compact{Force: protocol.Value(p.Force)}, compactPatience)
	return api.CompactResult{
		Compacted: done.Compacted, Reason: done.Reason, Summary: done.Summary, By: done.By,
		TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
	}, err
}

func (s *Server) listModels(ctx context.Context, c *call, _ api.None) (any, error) {
	models, err := askID(ctx, s, c, protocol.GetAvailableModels{})
	return api.ListModelsResult(models), err
}
