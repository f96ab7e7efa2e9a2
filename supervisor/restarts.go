package supervisor

import (
	"context"
	"runtime"
	"sync"
	"time"
)

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
