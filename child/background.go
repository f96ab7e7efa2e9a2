package child

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nexus.internal/protocol"
)

// taskLimit bounds the commands of a kind that run in the background.
type taskLimit struct {
	what    string // completes "4 … already"
	most    int    // at once; a further one is refused
	timeout time.Duration
}

var (
	modelLists     = taskLimit{"lists of models are being fetched", 4, 10 * time.Second}
	historyReads   = taskLimit{"reads of the whole conversation are under way", 2, 60 * time.Second}
	serverCommands = taskLimit{"commands to MCP servers are under way", 16, 40 * time.Second}
)

// errTimeout is why a command in the background is given up.
var errTimeout = errors.New("it takes too long")

// background runs beside the reader and the turns what may take long, such as a request
// for a list of models. It is safe for concurrent use.
type background struct {
	ctx   context.Context // of all tasks
	out   *emitter
	tasks sync.WaitGroup

	mu      sync.Mutex // guards all below
	closed  bool       // nothing more is started
	running map[taskLimit]int
}

func newBackground(ctx context.Context, out *emitter) *background {
	return &background{ctx: ctx, out: out, running: map[taskLimit]int{}}
}

// start runs a task, unless the end has begun.
func (b *background) start(task func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(func() { task(b.ctx) }) // under the lock: nobody waits for the tasks yet
	}
}

// startCommand runs a command within the limit of its kind, and writes its response. An
// error says that it does not run.
func (b *background) startCommand(limit taskLimit, run func(ctx context.Context) protocol.Response) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errShutdown
	case b.running[limit] >= limit.most:
		return fmt.Errorf("%d %s already", limit.most, limit.what)
	}
	b.running[limit]++
	b.tasks.Go(func() { // under the lock: nobody waits for the tasks yet
		ctx, cancel := context.WithTimeoutCause(b.ctx, limit.timeout, errTimeout)
		defer cancel()
		response := run(ctx)
		b.mu.Lock()
		b.running[limit]--
		b.mu.Unlock()
		b.out.post(response) // after there is room: who has read it may send another
	})
	return nil
}

func (b *background) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
