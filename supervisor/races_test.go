package supervisor_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// hasty is a turn that ends soon, aborted or not.
func hasty(c *supervisortest.Child, p protocol.Prompt) {
	c.Say("so")
	if rand.IntN(3) > 0 {
		c.Sleep(rand.N(200 * time.Microsecond))
	}
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	c.Finish(p, "so")
}

// 10,000 turns whose end is raced by cancels, crashes, their time limit, the stop
// of their agent and its removal: one outcome each, and all who asked are told
// the same.
func TestRaces(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	launcher := &supervisortest.Launcher{Plan: always(supervisortest.Play{Prompt: hasty})}
	sup := supervisor.New(supervisor.Options{Launcher: launcher})
	got, err := supervisortest.Races{
		Supervisor: sup, Workers: 20, Rounds: 500, Pause: 100 * time.Microsecond,
		Spec: func(id string) supervisor.Spec {
			return supervisor.Spec{
				ID: id, AbortGrace: 2 * time.Millisecond,
				Policy: supervisor.Policy{Initial: time.Microsecond, Max: time.Microsecond, Limit: 1 << 30},
			}
		},
		Crash: func(a *supervisor.Agent) { launcher.Child(a.ID()).Crash(supervisor.Exit{Code: 3}) },
	}.Run(ctx)
	if err != nil {
		t.Error(err)
	}
	turns := 0
	for _, o := range []supervisor.Outcome{supervisor.Completed, supervisor.Cancelled, supervisor.Crashed, supervisor.TimedOut} {
		turns += got[o]
		if got[o] == 0 {
			t.Errorf("no turn %s: nothing was raced", o)
		}
	}
	if turns != 10_000 {
		t.Errorf("%d turns, want 10000: %v", turns, got)
	}
	if err := sup.Run(killedContext()); err != nil {
		t.Error(err)
	}
}

// killedContext has ended.
func killedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
