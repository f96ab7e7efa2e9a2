package main

import (
	"time"

	"go.uber.org/zap"
)

// sweepPatience is how long a server's start waits for what dead processes left.
const sweepPatience = 2 * time.Second

// startSweep runs sweep, which removes what dead processes left, and returns when it has
// ended, or after sweepPatience if there is room on the disk then. The caller calls wait
// at its end, which returns after sweepPatience at the latest. What could not be removed is a warning in the log.
func startSweep(sweep, room func() error, log *zap.Logger) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		warnOfLeft(sweep(), log)
	}()
	within := func() bool {
		patience := time.NewTimer(sweepPatience)
		defer patience.Stop()
		select {
		case <-ended:
			return true
		case <-patience.C:
			return false
		}
	}
	if !within() && room() != nil {
		<-ended
	}
	return func() {
		if !within() { // the goroutine ends with the process
			log.Warn("what programs of agents left is still being removed: the next server goes on")
		}
	}
}

func warnOfLeft(err error, log *zap.Logger) {
	if err != nil {
		log.Warn("remove what programs of agents left", zap.Error(err))
	}
}
