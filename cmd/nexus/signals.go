package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// watchSignals calls ask at the first signal that asks the server to end. A
// signal that comes once it was asked (asked has ended, however it came to that)
// ends the process at once, as that signal does, after tidy. The caller must
// call stop; signals have no effect from then on.
func watchSignals(asked context.Context, ask, tidy func()) (stop func()) {
	signals := make(chan os.Signal, 2) // one for each call
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			ask()
		case <-asked.Done():
		case <-ended:
			return
		}
		select {
		case last := <-signals:
			tidy()
			endBy(last)
		case <-ended:
		}
	})
	return func() {
		close(ended)
		watching.Wait()
	}
}

// endBy ends this process as the signal does that nobody handles, so that its
// parent sees why.
func endBy(s os.Signal) {
	signal.Reset(s)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && !signal.Ignored(s) && self.Signal(s) == nil {
		select {} // another thread may take it
	}
	os.Exit(1) // where a signal does not end it
}
