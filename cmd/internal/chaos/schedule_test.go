package chaos_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/cmd/internal/chaos"
)

// The attacks that every plan promises are made on a machine on which each takes
// so long that there is no time for them, also where one is not possible at first.
// Once the attack ended without having killed the server.
func TestPromisedAttacksAreMade(t *testing.T) {
	for name, slow := range map[string]time.Duration{"quick": 10 * time.Millisecond, "slow": 20 * time.Second, "very slow": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const long = 27 * time.Second
				plan := chaos.NewPlan(14446, 20, 30*time.Second)
				began, left := time.Now(), 5 // kills that are not possible
				var did []chaos.Action
				err := chaos.CarryOut(t.Context(), plan, long, func(_ context.Context, step chaos.Step) (missed bool) {
					time.Sleep(slow) // in the bubble's time
					if step.Do == chaos.Kill && left > 0 {
						left--
						return true
					}
					did = append(did, step.Do)
					return false
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, action := range []chaos.Action{chaos.Kill, chaos.FillDisk, chaos.KillServer} {
					if !slices.Contains(did, action) {
						t.Errorf("no %s among %v", action, did)
					}
				}
				if took := time.Since(began); took < long || name == "quick" && took > long+time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// An attack that is interrupted makes up for nothing.
func TestInterruptedAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, interrupt)
		began := time.Now()
		err := chaos.CarryOut(ctx, chaos.NewPlan(14446, 20, 30*time.Second), 27*time.Second, func(context.Context, chaos.Step) bool { return true })
		if took := time.Since(began); err != nil || took > 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// An attack that fails is the end of it.
func TestFailedAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("no such file")
		calls := 0
		err := chaos.CarryOutOr(t.Context(), chaos.NewPlan(14446, 20, 30*time.Second), 27*time.Second, func() error { calls++; return why })
		if !errors.Is(err, why) || calls != 1 {
			t.Errorf("%v after %d", err, calls)
		}
	})
}

// Nothing is attacked, nor an error, when the server is lost.
func TestAttackOfLostServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, lost := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, lost)
		began := time.Now()
		err := chaos.CarryOutOr(whole, chaos.NewPlan(14446, 20, 30*time.Second), 27*time.Second, func() error { return whole.Err() })
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
