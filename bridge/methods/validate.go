package methods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
)

// checkTurns divide the places of checkers between those that ask. All keys but full ones
// have one place together, and each of them one check that has it or waits for it. So a full
// key does not wait for the others, and they take turns.
type checkTurns struct {
	each   agents.KeyLock // by the id of a key
	others chan struct{}  // full while one of them has a check
}

func newCheckTurns() checkTurns { return checkTurns{others: make(chan struct{}, 1)} }

// enter waits for a caller's turn; the error is that of ctx.
func (t *checkTurns) enter(ctx context.Context, by rpc.Principal) (leave func(), err error) {
	if by.Grant.Scope == auth.ScopeFull {
		return func() {}, nil
	}
	unlock, err := t.each.LockContext(ctx, by.Grant.ID)
	if err != nil {
		return nil, err
	}
	select {
	case t.others <- struct{}{}:
		return func() { <-t.others; unlock() }, nil
	case <-ctx.Done():
		unlock()
		return nil, ctx.Err()
	}
}

func (m *taskMethods) validateCode(ctx context.Context, c *rpc.Call, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	limit := api.DefaultCheckTimeout * time.Second
	if p.TimeoutS != nil {
		limit = task.Timeout(p.TimeoutS)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	leave, err := m.checks.enter(limited, c.By)
	if err != nil && ctx.Err() == nil {
		return api.ValidateCodeResult{}, tookTooLong("other checks took the %s that this one had", limit)
	}
	if err != nil {
		return api.ValidateCodeResult{}, err
	}
	defer leave()
	result, err := m.checker.Check(limited, p)
	if e, ok := errors.AsType[*protocol.CodeError](err); ok && e.Kind == protocol.UnknownLanguage {
		return api.ValidateCodeResult{}, api.Invalid("language", "%s", e.Message)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return api.ValidateCodeResult{}, tookTooLong("the checker was ended after %s", limit)
	}
	if err != nil {
		return api.ValidateCodeResult{}, err
	}
	return result, nil
}

// tookTooLong is TIMEOUT of a check that had limit for it all; what has it as %s.
func tookTooLong(what string, limit time.Duration) error {
	return &api.Error{
		Kind: api.KindTimeout, Details: fmt.Sprintf(what, limit),
		Suggestions: []string{"Send it again with a longer timeout_s, or less code."},
	}
}
