package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// CheckKind is why code was not checked.
type CheckKind string

// The kinds of a CheckError.
const (
	CheckLanguage CheckKind = "language" // nobody knows it
	CheckMissing  CheckKind = "missing"  // no checker for it is on the machine
	CheckFailed   CheckKind = "failed"   // the checker did not do its work
)

// CheckError says why code was not checked.
type CheckError struct {
	Kind    CheckKind
	Details string
}

func (e *CheckError) Error() string { return e.Details }

func (s *Server) validateCode(ctx context.Context, _ *call, p api.ValidateCodeParams) (any, error) {
	limit := api.DefaultCheckTimeout * time.Second
	if p.TimeoutS != nil {
		limit = timeout(p.TimeoutS)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := s.o.Check(limited, p)
	if e, ok := errors.AsType[*CheckError](err); ok && e.Kind == CheckLanguage {
		return nil, api.Invalid("language", "%s", e.Details)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("the checker was ended after %s: %w", limit, supervisor.ErrTurnTimeout)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}
