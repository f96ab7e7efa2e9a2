package supervisor

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"time"
)

// starvePatience is how long what waits goes on waiting while the server lacks
// something for a restart.
const starvePatience = 10 * time.Second

// backoff decides on the restarts of an agent, and waits for the next one. It is a part of the
// agent's state.
type backoff struct {
	policy  Policy
	crashes []time.Time // the last ones, oldest first
	unready int         // restarts in a row that did not become ready
	starved []time.Time // restarts that the server lacked something for, since one came to anything, oldest first
	timer   *time.Timer // of Backoff
}

// crashed says what follows a crash: the delay before the restart, or again false if the agent
// has failed. unready says that the incarnation was not ready before; spread is that of Policy.Next.
func (b *backoff) crashed(unready bool, spread float64) (delay time.Duration, again bool) {
	now := time.Now()
	b.crashes, b.starved = remember(b.crashes, now), nil
	if unready {
		b.unready++ // one that hangs is no crash within the window
	}
	delay, again = b.policy.Next(b.crashes, now, spread)
	return delay, again && b.unready <= b.policy.orDefault().Limit
}

// lacked is the delay before another attempt at a restart for which the server lacked
// something: it is no crash. late says that it has lacked that for starvePatience.
func (b *backoff) lacked(spread float64) (delay time.Duration, late bool) {
	now := time.Now()
	b.starved = remember(b.starved, now)
	patient := b.policy
	patient.Limit = crashMemory
	delay, _ = patient.Next(b.starved, now, spread)
	return delay, now.Sub(b.starved[0]) >= starvePatience
}

func (b *backoff) ready() { b.unready, b.starved = 0, nil }

func (b *backoff) forgive() { b.crashes, b.unready, b.starved = nil, 0, nil }

// wait calls restart after a delay, in a goroutine of its own.
func (b *backoff) wait(delay time.Duration, restart func()) { b.timer = time.AfterFunc(delay, restart) }

func (b *backoff) stop() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

func remember(moments []time.Time, now time.Time) []time.Time {
	return append(moments[max(0, len(moments)-crashMemory+1):], now)
}

// restartHold is how long a restart that is not ready keeps the others waiting:
// a start that takes longer waits for something else than a processor.
const restartHold = 250 * time.Millisecond

// restarts lets few incarnations be launched at once after a crash, so that many
// agents that crash together leave processors to those that work: half of them,
// at least one, and those for half of the time. Who waits comes first in, first out, and at most once for each
// agent. First starts do not wait: somebody asked for them.
type restarts struct{ running chan struct{} }

func newRestarts() restarts {
	return restarts{running: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// begin waits until a restart may be launched. The caller calls done once it is
// over; the next one begins when as much time again has passed, so that what is
// left of a processor serves others, and what the restart led to is done: a
// program that crashes at once has to be cleared away. The error is the cause of
// ctx's end.
func (r restarts) begin(ctx context.Context) (done func(), err error) {
	select {
	case r.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	began := time.Now()
	free := sync.OnceFunc(func() { <-r.running })
	patience := time.AfterFunc(restartHold, free)
	return func() { patience.Reset(min(time.Since(began), restartHold-time.Since(began))) }, nil
}

// Policy decides on restarts. A zero field means its default of SPEC §5.4.
type Policy struct {
	// Initial is the delay after a first crash; 0 means 100 ms. It doubles with
	// each further one, until it is Max.
	Initial time.Duration
	// Max bounds the delay; 0 means 30 s.
	Max time.Duration
	// Limit is how many crashes within Window are forgiven, and how many restarts in a row
	// that do not become ready; one more and the agent has failed. 0 means 5, negative
	// means none.
	Limit int
	// Window is what Limit counts in; 0 means 10 s.
	Window time.Duration
	// Calm is the time without a crash that makes good one failure; 0 means
	// 60 s.
	Calm time.Duration
}

// crashMemory is how many crashes are remembered at most: enough for any delay
// to have grown to its bound.
const crashMemory = 64

func (p Policy) orDefault() Policy {
	p.Initial = cmp.Or(p.Initial, 100*time.Millisecond)
	p.Max = cmp.Or(p.Max, 30*time.Second)
	p.Limit = max(cmp.Or(p.Limit, 5), 0)
	p.Window = cmp.Or(p.Window, 10*time.Second)
	p.Calm = cmp.Or(p.Calm, 60*time.Second)
	return p
}

// Next says what follows the last of crashes, which are in order of time and
// end with the present one: the delay before the restart, or again false if
// there were too many. The delay is Initial, doubled for each failure before
// this one; a crash counts as one failure, and each Calm without a crash takes
// one away. spread in [0,1) places the delay within a fifth below
// and above its mean, so that agents that died together do not return together.
func (p Policy) Next(crashes []time.Time, now time.Time, spread float64) (delay time.Duration, again bool) {
	p = p.orDefault()
	most := 1 // failures that make the longest delay
	for d := p.Initial; d < p.Max; d *= 2 {
		most++
	}
	recent, failures := 0, 0
	for i, crash := range crashes {
		if now.Sub(crash) < p.Window {
			recent++
		}
		if i > 0 {
			failures = max(0, failures-int(crash.Sub(crashes[i-1])/p.Calm))
		}
		failures = min(failures+1, most)
	}
	if recent > p.Limit {
		return 0, false
	}
	delay = p.Initial << (failures - 1)
	delay = time.Duration(float64(min(delay, p.Max)) * (0.8 + 0.4*spread))
	return min(delay, p.Max), true
}
