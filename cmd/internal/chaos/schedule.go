package chaos

import (
	"context"
	"time"
)

// required are the attacks without which a promise that was kept says nothing, in
// the order in which they are made up for.
var required = []Action{FillDisk, KillServer, Kill}

// retryPause lies before a required attack that was not possible is tried again.
const retryPause = 100 * time.Millisecond

// outcome is what came of an attack.
type outcome int

const (
	made       outcome = iota
	missed             // it was not possible then
	impossible         // it is never possible here
)

// runSteps calls do with the steps of the plan's attack, each at its time since began
// or late, for so long. The required ones are taken then that were not done
// yet, because the machine is slow or they were not possible: however late, and
// until they are done. It ends at once when ctx does. What has begun is
// finished, unless whole ends, which is the end of all. The error is that of do.
func (p Plan) runSteps(ctx, whole context.Context, began time.Time, long time.Duration, do func(context.Context, Step) (outcome, error)) error {
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	defer context.AfterFunc(whole, cancel)()
	pending := map[Action]Step{}
	for _, action := range required {
		pending[action] = Step{Do: action, Agent: p.Control, For: time.Second}
	}
	take := func(step Step) error {
		came, err := do(whole, step)
		if came != missed {
			delete(pending, step.Do)
		}
		if whole.Err() != nil {
			return nil // there is nothing to attack any more
		}
		return err
	}
	for _, step := range p.Attack {
		if !pause(limited, time.Until(began.Add(step.At))) {
			break
		}
		if err := take(step); err != nil {
			return err
		}
	}
	<-limited.Done()
	for _, action := range required {
		for {
			step, ok := pending[action]
			if !ok || ctx.Err() != nil || whole.Err() != nil {
				break
			}
			if err := take(step); err != nil {
				return err
			}
			if _, ok := pending[action]; ok {
				pause(whole, retryPause)
			}
		}
	}
	return nil
}

// pause waits, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
