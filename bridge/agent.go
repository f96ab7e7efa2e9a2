package bridge

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (s *Server) send(ctx context.Context, c *rpc.Call, p api.SendParams, out *rpc.Stream) (api.SendResult, error) {
	if c.By.Agent != nil {
		return s.sendFor(ctx, c, p)
	}
	c.Request.Params = nil // while it waits its text is there once
	a, err := s.agent(ctx, c.Agent)
	if err != nil {
		return api.SendResult{}, err
	}
	s.used(a)
	return s.sendTo(ctx, c, a, p, out)
}

// sendTo sends and waits for the answer, unless c is a notification.
func (s *Server) sendTo(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.SendParams, out *rpc.Stream) (sent api.SendResult, err error) {
	onDisconnect := protocol.Value(p.OnDisconnect)
	turn, a, err := s.prompt(ctx, a, p)
	if err != nil {
		return api.SendResult{}, err
	}
	c.Agent = a.ID()
	if c.Request.IsNotification() {
		return api.SendResult{RequestID: turn.ID()}, nil // nobody waits for more
	}
	if out == nil {
		sent, err = await(ctx, c, turn)
	} else {
		sent, err = s.streamTurn(ctx, c, turn, out)
	}
	if errors.Is(err, rpc.ErrSlowClient) || rpc.Left(ctx) {
		s.left(ctx, a.ID(), turn, onDisconnect)
	}
	return sent, err
}

// await waits for the outcome of a turn. Where ctx ends first, the error is why,
// in a *rpc.TurnError without outcome.
func await(ctx context.Context, c *rpc.Call, turn *supervisor.Turn) (api.SendResult, error) {
	outcome, err := turn.Wait(ctx)
	c.Incarnation = outcome.Incarnation
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

// prompt sends, and returns the agent that took it.
func (s *Server) prompt(ctx context.Context, a *supervisor.Agent, p api.SendParams) (*supervisor.Turn, *supervisor.Agent, error) {
	prompt, options := promptOf(p)
	turn, a, err := following(ctx, s, a, func(a *supervisor.Agent) (*supervisor.Turn, error) { return a.Prompt(ctx, prompt, options) })
	if errors.Is(err, supervisor.ErrDraining) {
		err = rpc.ErrNotAccepted
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
		return api.SendResult{}, &rpc.TurnError{Err: err, Outcome: r.Outcome, Text: r.Text, Replayed: r.Replayed}
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

func (s *Server) cancel(ctx context.Context, c *rpc.Call, p api.CancelParams) (api.CancelResult, error) {
	result := api.CancelResult{RequestID: p.RequestID}
	if c.Agent == "" {
		cancelled, err := s.cancelPlan(ctx, p.RequestID)
		if err != nil {
			return api.CancelResult{}, err
		}
		if result.Cancelled = cancelled; !cancelled {
			result.Reason = "not_found_or_completed"
		}
		return result, nil
	}
	var err error
	if p.RequestID != "" {
		result.Cancelled, err = s.abort(ctx, c.Agent, p.RequestID)
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

func (s *Server) shutdown(ctx context.Context, c *rpc.Call, _ api.None) (api.SuccessResult, error) {
	// The same holds here: what does not run is shut down already.
	if a, err := s.o.Supervisor.Agent(c.Agent); err == nil {
		if err := a.Shutdown(context.WithoutCancel(ctx)); err != nil {
			return api.SuccessResult{}, err
		}
	}
	return api.SuccessResult{Success: true}, nil
}

// state asks an agent's process for what it knows about itself.
func (s *Server) state(ctx context.Context, c *rpc.Call) (protocol.State, error) {
	return askID(ctx, s, c, protocol.GetState{})
}

// askID is ask for the agent of a call, which is started if need be.
func askID[R any](ctx context.Context, s *Server, c *rpc.Call, command protocol.Request[R]) (R, error) {
	a, err := s.agent(ctx, c.Agent)
	if err != nil {
		var none R
		return none, err
	}
	c.Incarnation = a.Info().Incarnation
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

func (s *Server) getTokens(ctx context.Context, c *rpc.Call, _ api.None) (api.GetTokensResult, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return api.GetTokensResult{}, err
	}
	return api.GetTokensResult(state.Tokens), nil
}

func (s *Server) getContext(ctx context.Context, c *rpc.Call, _ api.None) (api.GetContextResult, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return api.GetContextResult{}, err
	}
	return api.GetContextResult{
		MessageCount: state.MessageCount, SystemPrompt: state.SystemPrompt != "", SessionID: state.SessionID,
		Model: state.Model, Provider: state.Provider, Cwd: state.Cwd, PermissionLevel: state.Preset,
		HaltedAtIterationLimit: state.HaltedAtIterationLimit, Usage: state.Usage, Cost: state.Cost,
	}, nil
}

// getMessages passes on a page as the child wrote it.
func (s *Server) getMessages(ctx context.Context, c *rpc.Call, p api.GetMessagesParams) (rpc.Raw[api.GetMessagesResult], error) {
	page, err := askID(ctx, s, c, protocol.GetMessages{Offset: p.Offset, Limit: p.Limit})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(page)
	return raw, err
}

func (s *Server) getModel(ctx context.Context, c *rpc.Call, _ api.None) (api.GetModelResult, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return api.GetModelResult{}, err
	}
	return api.GetModelResult{Model: state.Model, Provider: state.Provider, Reasoning: state.Reasoning}, nil
}

func (s *Server) setModel(ctx context.Context, c *rpc.Call, p api.SetModelParams) (api.SetModelResult, error) {
	if p.Model == "" {
		return api.SetModelResult{}, api.Invalid("model", "is empty")
	}
	set, err := askID(ctx, s, c, protocol.SetModel{Model: p.Model})
	if err != nil {
		return api.SetModelResult{}, refusedChange(c, "model", protocol.SetModel{}, err)
	}
	return api.SetModelResult{Updated: true, Model: cmp.Or(set.Model, p.Model)}, nil
}

// compactPatience is how long a summary may be in the making.
const compactPatience = 10 * time.Minute

func (s *Server) compact(ctx context.Context, c *rpc.Call, p api.CompactParams) (api.CompactResult, error) {
	a, err := s.agent(ctx, c.Agent)
	if err != nil {
		return api.CompactResult{}, err
	}
	c.Incarnation = a.Info().Incarnation
	done, err := askFor(ctx, s, a, protocol.Compact{Force: protocol.Value(p.Force)}, compactPatience)
	return api.CompactResult{
		Compacted: done.Compacted, Reason: done.Reason, Summary: done.Summary, By: done.By,
		TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
	}, err
}

func (s *Server) listModels(ctx context.Context, c *rpc.Call, _ api.None) (api.ListModelsResult, error) {
	models, err := askID(ctx, s, c, protocol.GetAvailableModels{})
	return api.ListModelsResult(models), err
}
