package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// p50 is the median time of n runs of f, after n/10 that are not counted.
func p50(ctx context.Context, n int, f func() error) (time.Duration, error) {
	for range n / 10 {
		if err := f(); err != nil {
			return 0, err
		}
	}
	times := make([]time.Duration, 0, n)
	for range n {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	return median(times), nil
}

// median sorts times; it is 0 for none.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// perSecond runs f n times in each of some workers at once and returns how
// often a second it was done in all.
func perSecond(ctx context.Context, workers, n int, f func(worker int) error) (float64, error) {
	errs := make([]error, workers)
	var working sync.WaitGroup
	began := time.Now()
	for worker := range workers {
		working.Go(func() {
			for range n {
				if errs[worker] = errors.Join(ctx.Err(), f(worker)); errs[worker] != nil {
					return
				}
			}
		})
	}
	working.Wait()
	return float64(workers*n) / time.Since(began).Seconds(), errors.Join(errs...)
}
