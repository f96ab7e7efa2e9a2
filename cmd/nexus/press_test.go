package main_test

import (
	"os"
	"syscall"
	"time"
)

// signalUntilEnd gives the process the signal every 100 ms until it has ended and was
// waited for. The caller must call the result after that.
func signalUntilEnd(p *os.Process, s syscall.Signal) (joined func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for p.Signal(s) == nil {
			<-again.C
		}
	}()
	return func() { <-done }
}
