package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// The pauses between attempts: the first, which doubles from one to the next, and the longest. A
// model's service that wants to be left alone for longer than that is not asked again.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// attemptID is the id of the first turn of an attempt at what is asked for by that id.
func attemptID(id string, attempt int) string {
	if attempt == 1 {
		return id
	}
	return fmt.Sprintf("%s/attempt-%d", id, attempt)
}

// SecondTurn is the id of the turn that asks again.
func SecondTurn(id string) string { return id + "/again" }

// TurnIDs are those that the turns of a prompt can have.
func TurnIDs(id string, attempts int) (ids []string) {
	for n := range max(attempts, 1) {
		first := attemptID(id, n+1)
		ids = append(ids, first, SecondTurn(first))
	}
	return ids
}

// Ask puts a prompt and, where its answer is not of the shape, asks once more, before anything
// that waits for the agent. Where the agent crashes or its model cannot be reached, all of it is tried again
// after a pause, as often and as long as the prompt allows. The errors are those of a turn, that of badAnswer, and that of ctx: the
// turn goes on then, unless ctx ended by supervisor.ErrAborted, which cancels it.
func Ask[T any](ctx context.Context, r *Runner, a *supervisor.Agent, e Prompt, read func(string) (T, error)) (answer T, c Cost, err error) {
	start := time.Now()
	ctx, end := r.begin(ctx, e.ID, a)
	defer func() { end(c.Cancelled != nil) }()
	c.Replayed = true
	for c.Attempts = 1; ; c.Attempts++ {
		this := e
		this.ID, this.Timeout = attemptID(e.ID, c.Attempts), e.Timeout-time.Since(start)
		answer, err = askOnce(ctx, r, a, this, &c, read)
		pause, passes := pauseAfter(err, c.Attempts)
		if !passes || c.Attempts >= e.Attempts || ctx.Err() != nil || time.Since(start)+pause >= e.Timeout {
			return answer, c, err
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			if c.Cancelled = aborted(ctx); c.Cancelled != nil {
				err = nil
			}
			return answer, c, err
		}
	}
}

// pauseAfter is how long to wait after an attempt that failed; passes says whether what it failed of
// may be over then.
func pauseAfter(err error, attempt int) (pause time.Duration, passes bool) {
	pause = min(firstPause<<(attempt-1), maxPause)
	if crash, ok := errors.AsType[*supervisor.CrashError](err); ok {
		return pause, crash.Session == nil && crash.Dir == nil && (crash.Exit == nil || crash.Exit.Limit == "")
	}
	e, ok := errors.AsType[*supervisor.ChildError](err)
	if !ok || e.Reason != protocol.Unreachable && e.Reason != protocol.RateLimited {
		return 0, false
	}
	return max(pause, e.RetryAfter), e.RetryAfter <= maxPause
}

// askOnce is one attempt of Ask, whose cost it adds to c.
func askOnce[T any](ctx context.Context, r *Runner, a *supervisor.Agent, e Prompt, c *Cost, read func(string) (T, error)) (answer T, err error) {
	start := time.Now()
	how := supervisor.PromptOptions{Hold: true}
	for first := true; ; first = false {
		if err := aborted(ctx); err != nil {
			c.Cancelled = err
			return answer, nil
		}
		turn, err := r.beginTurn(ctx, a, e, how)
		if err != nil {
			return answer, err
		}
		if first {
			defer turn.Release()
		}
		c.Turns = append(c.Turns, e.ID)
		outcome, err := wait(ctx, a, turn, e.ID)
		failed := func(err error) error {
			return &rpc.TurnError{
				Err: err, Outcome: outcome.Outcome, Text: outcome.Text, Replayed: outcome.Replayed, AgentID: a.ID(), RequestID: e.ID,
			}
		}
		c.Usage.Add(outcome.Usage)
		c.Elapsed += outcome.Ran
		c.Replayed = c.Replayed && outcome.Replayed
		switch {
		case outcome.Outcome == supervisor.Cancelled && (outcome.Replayed || !errors.Is(err, supervisor.ErrDraining)):
			if c.Cancelled = err; err == nil {
				c.Cancelled = supervisor.ErrAborted
			}
			return answer, nil
		case errors.Is(err, supervisor.ErrDraining), err != nil && ctx.Err() != nil:
			return answer, err
		case err != nil:
			return answer, failed(err)
		case outcome.Truncated:
			return answer, failed(badAnswer("it is longer than what is kept of it"))
		}
		answer, err = read(outcome.Text)
		if err == nil {
			return answer, nil
		}
		if outcome.StopReason == protocol.StopMaxTokens || outcome.StopReason == protocol.StopContentFilter {
			err = fmt.Errorf("%w; the model's service cut the answer off (%s)", err, outcome.StopReason)
		}
		left := e.Timeout - time.Since(start)
		switch {
		case !first:
			return answer, failed(badAnswer(err.Error()))
		case left <= 0:
			return answer, fmt.Errorf("no time is left to ask again after an answer that could not be used (%w): %w", err, supervisor.ErrTurnTimeout)
		}
		c.Repaired = true
		how = supervisor.PromptOptions{WhenBusy: supervisor.Next}
		e = Prompt{ID: SecondTurn(e.ID), Text: RepairPrompt(err), Timeout: left, Limited: e.Limited}
	}
}
