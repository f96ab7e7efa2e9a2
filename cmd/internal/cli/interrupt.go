package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// oneRequest is how long after a signal that asks a program to end further ones are taken
// for the same request: timeout(1), and other programs that pass a signal on, tell a program
// and its process group both, so it gets each signal twice.
const oneRequest = 500 * time.Millisecond

// Interruptible is a context that ends with ctx, or at SIGINT or SIGTERM. The caller must
// call stop; from then on these signals end the program.
func Interruptible(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// InterruptibleOnce is Interruptible for a program that a second signal ends.
func InterruptibleOnce(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = Interruptible(ctx)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneRequest, stop) })
	return ctx, stop
}

// SecondSignal is the next signal that is a request of its own, after one that came just
// now; nil if ended was closed before.
func SecondSignal(signals <-chan os.Signal, ended <-chan struct{}) os.Signal {
	for first := time.Now(); ; {
		select {
		case s := <-signals:
			if time.Since(first) > oneRequest {
				return s
			}
		case <-ended:
			return nil
		}
	}
}
