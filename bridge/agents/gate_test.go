package agents_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/agents"
)

// entering is a call that waits at a gate, or is under way.
type entering struct {
	leave func()
	err   error
	done  chan struct{}
}

func enter(ctx context.Context, g *agents.Gates, queues bool) *entering {
	e := &entering{done: make(chan struct{})}
	go func() { // which ends with the bubble
		defer close(e.done)
		e.leave, e.err = g.Enter(ctx, "x", queues)
	}()
	return e
}

func (e *entering) waits() bool {
	synctest.Wait()
	select {
	case <-e.done:
		return false
	default:
		return true
	}
}

// While an agent is handed over, each call of it waits, and none is under way. What would wait for a turn waits from the time on when one is waited for.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g agents.Gates
		under := enter(t.Context(), &g, true)
		if under.waits() {
			t.Fatal("a call of an agent that nobody hands over waits")
		}
		g.Hold("x")
		held, read := enter(t.Context(), &g, true), enter(t.Context(), &g, false)
		if !held.waits() || read.waits() {
			t.Errorf("while a turn is waited for, a send waits: %t, another call: %t", held.waits(), read.waits())
		}
		read.leave()
		if g.ShutIdle(t.Context(), "x") {
			t.Error("a call is under way, and the agent is handed over")
		}
		if more := enter(t.Context(), &g, false); more.waits() {
			t.Error("after an attempt in vain, calls wait")
		} else {
			more.leave()
		}
		under.leave()
		if !g.ShutIdle(t.Context(), "x") {
			t.Error("no call is under way, and the agent is not handed over")
		}
		shut := enter(t.Context(), &g, false)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := enter(ctx, &g, false)
		if !shut.waits() || !left.waits() || !held.waits() {
			t.Error("a call does not wait for the end of a hand-over")
		}
		gone := errors.New("gone")
		cancel(gone)
		if left.waits() || !errors.Is(left.err, gone) {
			t.Errorf("a caller that is gone: %v", left.err)
		}
		g.Open("x", true) // it has a turn again
		if shut.waits() || !held.waits() {
			t.Error("a hand-over that came to nothing: a send does not wait, or another call does")
		}
		shut.leave()
		g.Open("x", false)
		if held.waits() {
			t.Error("a send waits for nothing")
		}
		held.leave()
		if g.Known() != 0 {
			t.Errorf("gates that nobody uses are kept: %d", g.Known())
		}
	})
}

// A send is not held for longer than a minute: then it waits behind the turns before it, as on a machine that does not drain.
func TestGateLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g agents.Gates
		g.Hold("x")
		began := time.Now()
		leave, err := g.Enter(t.Context(), "x", true)
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("held for %s, %v", time.Since(began), err)
		}
		leave()
	})
}
