package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// step takes one figure once: seconds, or how often a second, or bytes.
type step func() (float64, error)

// series is what a step was in each round.
type series struct {
	take   step
	values []float64
}

func of(take step) *series { return &series{take: take} }

func (s *series) median() float64 { return median(s.values) }

// figure is a row that is not measured yet.
type figure struct {
	name    string
	what    *series
	floor   *series
	floorIs string
	unit    unit
	bound   bound
	stat    statistic // of both series
}

// statistic is what is told of a series.
type statistic int

const (
	p50th statistic = iota
	p99th
	highest
)

func (s statistic) of(values []float64) float64 {
	switch s {
	case p99th:
		return p99(values)
	case highest:
		return slices.Max(values)
	case p50th:
	}
	return median(values)
}

// measure takes what the figures need, and returns their rows.
func measure(ctx context.Context, rounds int, figures ...figure) ([]row, error) {
	var all []*series
	for _, f := range figures {
		for _, s := range []*series{f.floor, f.what} {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	if err := inTurns(ctx, rounds, all...); err != nil {
		return nil, err
	}
	var rows []row
	for _, f := range figures {
		rows = append(rows, row{f.name, f.stat.of(f.what.values), f.stat.of(f.floor.values), f.floorIs, f.unit, f.bound})
	}
	return rows, nil
}

// inTurns takes all series once, then all again, and so on for some rounds, so
// that whatever else the machine does meets all of them alike. A first round is
// not counted.
func inTurns(ctx context.Context, rounds int, all ...*series) error {
	for round := range rounds + 1 {
		for _, s := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			got, err := s.take()
			if err != nil {
				return err
			}
			if round > 0 {
				s.values = append(s.values, got)
			}
		}
	}
	return nil
}

// times returns how long each of n runs of f takes, in seconds.
func times(ctx context.Context, n int, f func() error) ([]float64, error) {
	taken := make([]float64, 0, n)
	for range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(began).Seconds())
	}
	return taken, nil
}

// p50 is the median time of n runs of f, in seconds.
func p50(ctx context.Context, n int, f func() error) (float64, error) {
	taken, err := times(ctx, n, f)
	return median(taken), err
}

// median leaves values as they are. It is 0 for none, and the mean of the
// middle two for an even number.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[half-1] + sorted[half]) / 2
	}
	return sorted[half]
}

// p99 is the least of values that 99 in 100 of them do not exceed: the highest
// of fewer than 100, 0 of none.
func p99(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*99+99)/100-1]
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
