package chaos

import (
	"context"
	"time"
)

// MaxRemembered is how many events of an agent are remembered.
const MaxRemembered = maxRemembered

// CarryOut carries out a plan's attack from now on, by a function that reports
// whether a step was not possible.
func CarryOut(ctx context.Context, p Plan, long time.Duration, do func(context.Context, Step) (missed bool)) error {
	return p.runSteps(ctx, context.WithoutCancel(ctx), time.Now(), long, func(ctx context.Context, step Step) (outcome, error) {
		if do(ctx, step) {
			return missed, nil
		}
		return made, nil
	})
}

// CarryOutOr is CarryOut of a function that may fail, as long as whole lasts.
func CarryOutOr(whole context.Context, p Plan, long time.Duration, do func() error) error {
	return p.runSteps(context.WithoutCancel(whole), whole, time.Now(), long, func(context.Context, Step) (outcome, error) { return made, do() })
}
