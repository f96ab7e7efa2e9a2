package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// sweepPatience is how long a server's start waits for what dead processes left.
const sweepPatience = 2 * time.Second

// startSweep runs sweep, which removes what dead processes left until its context ends. It
// returns when sweep has ended, or after sweepPatience if there is room on the disk then.
// The caller calls last at its end, which ends that sweep and runs another one for
// sweepPatience at most. What could not be removed is a warning in the log.
func startSweep(sweep func(context.Context) error, room func() error, log *zap.Logger) (last func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		warnOfLeft(sweep(ctx), log)
	}()
	patience := time.NewTimer(sweepPatience)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		if room() != nil {
			<-ended
		}
	}
	return func() {
		cancel()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), sweepPatience)
		defer cancel()
		err := sweep(ctx)
		if ctx.Err() != nil {
			log.Warn("not everything that programs of agents left is removed: the next server goes on with it")
		}
		warnOfLeft(err, log)
	}
}

// warnOfLeft tells of what could not be removed; what there was no time for is not that.
func warnOfLeft(err error, log *zap.Logger) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		log.Warn("remove what programs of agents left", zap.Error(err))
	}
}
