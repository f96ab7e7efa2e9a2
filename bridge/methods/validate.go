package methods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (m *taskMethods) validateCode(ctx context.Context, _ *rpc.Call, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	limit := api.DefaultCheckTimeout * time.Second
	if p.TimeoutS != nil {
		limit = task.Timeout(p.TimeoutS)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := m.checker.Check(limited, p)
	if e, ok := errors.AsType[*protocol.CodeError](err); ok && e.Kind == protocol.UnknownLanguage {
		return api.ValidateCodeResult{}, api.Invalid("language", "%s", e.Message)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return api.ValidateCodeResult{}, fmt.Errorf("the checker was ended after %s: %w", limit, supervisor.ErrTurnTimeout)
	}
	if err != nil {
		return api.ValidateCodeResult{}, err
	}
	return result, nil
}
