package methods

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (m *turnMethods) send(ctx context.Context, c *rpc.Call, p api.SendParams, out *rpc.Stream) (api.SendResult, error) {
	if c.By.Agent != nil {
		return m.sendFor(ctx, c, p)
	}
	a, err := m.agents.Resolve(ctx, c.Agent)
	if err != nil {
		return api.SendResult{}, err
	}
	c.Request.Params = nil // while it waits its text is there once
	m.agents.NoteUsed(a)
	return m.sendTo(ctx, c, a, p, out)
}

// sendTo sends and waits for the answer, unless c is a notification.
func (m *turnMethods) sendTo(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.SendParams, out *rpc.Stream) (sent api.SendResult, err error) {
	onDisconnect := protocol.Value(p.OnDisconnect)
	turn, err := prompt(ctx, c, a, p, out != nil || c.Request.IsNotification())
	if err != nil {
		return api.SendResult{}, err
	}
	if c.Request.IsNotification() {
		return api.SendResult{RequestID: turn.ID()}, nil // nobody waits for more
	}
	if out == nil {
		sent, err = await(ctx, c, turn)
	} else {
		sent, err = m.streamTurn(ctx, c, turn, out)
	}
	if errors.Is(err, rpc.ErrSlowClient) || rpc.Left(ctx) {
		m.left(ctx, a.ID(), turn, onDisconnect)
	}
	return sent, err
}

// await waits for the outcome of a turn. Where ctx ends first, the error is why,
// in a *rpc.TurnError without outcome.
func await(ctx context.Context, c *rpc.Call, turn *supervisor.Turn) (api.SendResult, error) {
	outcome, err := turn.Wait(ctx)
	c.Incarnation = outcome.Incarnation
	if outcome.Outcome == "" && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return sendResult(outcome, err)
}

// left cancels the turn of a client that left, if it asked for that, and returns
// when the turn has ended.
func (m *turnMethods) left(ctx context.Context, id string, turn *supervisor.Turn, onDisconnect string) {
	if onDisconnect != api.OnDisconnectCancel {
		return
	}
	a, err := m.agents.Supervisor().Agent(id)
	if err != nil {
		return // and so is the turn
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.agents.CommandTimeout())
	defer cancel()
	if _, err := a.Abort(ctx, turn.ID()); err != nil {
		m.log.Warn("turn of a client that left is not cancelled", zap.String("agent", id), zap.Error(err))
	}
}

// prompt sends; told says that the sender, or somebody else, is told the request id before the outcome.
func prompt(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.SendParams, told bool) (*supervisor.Turn, error) {
	prompt, options := promptOf(c, p)
	options.Unnamed = protocol.Value(p.RequestID) == "" && !told && !options.Retry
	turn, err := a.Prompt(ctx, prompt, options)
	if errors.Is(err, supervisor.ErrDraining) {
		err = rpc.ErrNotAccepted
	}
	return turn, agents.Destroyed(a.ID(), err)
}

// promptOf is a send as the supervisor takes it.
func promptOf(c *rpc.Call, p api.SendParams) (protocol.Prompt, supervisor.PromptOptions) {
	prompt := protocol.Prompt{ID: protocol.Value(p.RequestID), Message: p.Content, Attachments: protocol.Value(p.Attachments)}
	prompt.Source, prompt.SourceAgentID = protocol.Value(p.Source), protocol.Value(p.SourceAgentID)
	if prompt.ID == "" {
		prompt.ID = uuid.NewString()
	}
	// Rounded up: 0 would mean no limit at all.
	options := supervisor.PromptOptions{Limited: c.Limited(), Timeout: time.Duration(math.Ceil(protocol.Value(p.TimeoutS) * float64(time.Second)))}
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

func (m *turnMethods) cancel(ctx context.Context, c *rpc.Call, p api.CancelParams) (api.CancelResult, error) {
	result := api.CancelResult{RequestID: p.RequestID}
	if c.Agent == "" {
		cancelled, err := m.plans.Cancel(ctx, p.RequestID)
		if err == nil && !cancelled {
			cancelled, err = m.tasks.Cancel(ctx, "", p.RequestID)
		}
		if err == nil && !cancelled {
			err = m.plans.Elsewhere(ctx, p.RequestID)
		}
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
		if result.Cancelled, err = m.tasks.Cancel(ctx, c.Agent, p.RequestID); err == nil && !result.Cancelled {
			result.Cancelled, err = m.agents.Cancel(ctx, c.Agent, p.RequestID)
		}
	}
	if !result.Cancelled {
		result.Reason = "not_found_or_completed"
	}
	return result, err
}

func (m *turnMethods) shutdown(ctx context.Context, c *rpc.Call, _ api.None) (api.SuccessResult, error) {
	// The same holds here: what does not run is shut down already.
	if a, err := m.agents.Supervisor().Agent(c.Agent); err == nil {
		if err := a.Shutdown(context.WithoutCancel(ctx)); err != nil {
			return api.SuccessResult{}, err
		}
	}
	return api.SuccessResult{Success: true}, nil
}
