package agents

import (
	"cmp"
	"context"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Ask gives an agent's process one command and returns its answer.
func Ask[R any](ctx context.Context, r *Registry, a *supervisor.Agent, command protocol.Request[R]) (R, error) {
	return ask(ctx, a, command, r.o.CommandTimeout, "")
}

// AskFor is Ask on behalf of a caller, for a command that may take its time; 0 is the usual one.
func AskFor[R any](ctx context.Context, r *Registry, c *rpc.Call, a *supervisor.Agent, command protocol.Request[R], patience time.Duration) (R, error) {
	return ask(ctx, a, command, cmp.Or(patience, r.o.CommandTimeout), c.Limited())
}

func ask[R any](ctx context.Context, a *supervisor.Agent, command protocol.Request[R], patience time.Duration, limited string) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := supervisor.DoLimited(ctx, a, command, limited)
	return answer, Destroyed(a.ID(), err)
}

// Cancel cancels a send and reports whether it ended as cancelled. An agent that
// does not run has nothing to cancel and is not started: what it did is on record.
func (r *Registry) Cancel(ctx context.Context, id, requestID string) (bool, error) {
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		return a.Abort(ctx, requestID)
	}
	unlock := r.locks.Lock(id) // nobody starts it meanwhile
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		unlock()
		return a.Abort(ctx, requestID)
	}
	defer unlock()
	if !r.o.Sessions.There(id) { // what is kept is of an earlier agent of that name
		return false, nil
	}
	outcome, err := r.o.Store.Outcome(id, requestID)
	return outcome == supervisor.Cancelled, err
}
