package replicated

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
)

const (
	// sweepEvery is how often is looked for objects that nothing names, and sweepPatience bounds a look.
	sweepEvery, sweepPatience = time.Hour, time.Minute
)

// sweepObjects removes what nothing names of the object store, until ctx ends.
func sweepObjects(ctx context.Context, s *Store) {
	unclaimed := map[string]bool{}
	for ratelimit.Sleep(ctx, sweepEvery) == nil {
		if err := sweep(ctx, s, unclaimed); err != nil && ctx.Err() == nil {
			s.log.Info("what nothing names stays in the object store; it is tried again", zap.Error(err))
		}
	}
}

// sweep looks once. unclaimed are the agents that had objects and that no machine had at the look before: a claim is known a moment after it was made.
func sweep(ctx context.Context, s *Store, unclaimed map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	stream, err := s.opened(ctx)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	err = stream.Sweep(ctx, func(name string, names []string) []string {
		claim, claimed := s.node.Owner(name)
		switch {
		case s.node.Check() != nil:
			return nil
		case !claimed:
			now[name] = true
			if unclaimed[name] {
				return names
			}
			return nil
		case claim.Machine != s.node.Self():
			return nil
		}
		a := s.of(name)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.mirror == nil {
			return nil
		}
		return a.mirror.Stray(names)
	})
	clear(unclaimed)
	maps.Copy(unclaimed, now)
	return errors.Join(err, s.node.Check())
}
