package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
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

// EndBySignal ends this process as the signal does that nobody handles, so that its
// parent sees why. If the process was started with s ignored, s would not end it: it
// exits with status 1.
func EndBySignal(s os.Signal, ignored bool) {
	signal.Reset(s)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && !ignored && self.Signal(s) == nil {
		select {} // another thread may take it
	}
	os.Exit(1) // where a signal does not end it
}

// endingLater is a context that ends at a signal that asks for our end. The signal itself waits until stop, which the caller
// must call: what is under way is taken back before, unless a second signal comes.
func endingLater(ctx context.Context) (_ context.Context, stop func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // Notify would have it heeded
			signal.Notify(signals, s)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	var first os.Signal
	var hearing sync.WaitGroup
	hearing.Go(func() {
		select {
		case first = <-signals:
			cancel()
			if s := SecondSignal(signals, stopped); s != nil {
				EndBySignal(s, false)
			}
		case <-stopped:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		hearing.Wait()
		cancel()
		select {
		case s := <-signals: // it came with the stop
			first = s
		default:
		}
		if first != nil {
			EndBySignal(first, false)
		}
	}
}
