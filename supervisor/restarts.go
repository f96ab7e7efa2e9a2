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
// at least one. Who waits comes first in, first out, and at most once for each
// agent. First starts do not wait: somebody asked for them.
type restarts struct{ running chan struct{} }

func newRestarts() restarts {
	return restarts{running: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// begin waits until a restart may be launched. The caller calls done once it is
// over. The error is the cause of ctx's end.
func (r restarts) begin(ctx context.Context) (done func(), err error) {
	select {
	case r.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-r.running })
	patience := time.AfterFunc(restartHold, free)
	return func() { patience.Stop(); free() }, nil
}
