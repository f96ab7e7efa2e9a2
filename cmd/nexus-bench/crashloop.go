package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// crashNow makes an agent of crashScenario end itself, at each prompt anew.
	crashNow      = "crash now"
	crashScenario = `{"turns":[{"match":"` + crashNow + `","steps":[{"crash":"kill"}]}],"after":"offline"}`
	// besideRounds is how often quiet and trouble take turns.
	besideRounds = 4
	// breath is the time between sends beside agents that misbehave.
	breath = 2 * time.Millisecond
)

// crashLoops are the figures of a healthy agent among many that crash at every
// prompt, are asked again, and made anew when they are given up.
func (b *bench) crashLoops(ctx context.Context, _ *server) (_ []row, err error) {
	scenario := filepath.Join(b.dir, "crash.json")
	if err := os.WriteFile(scenario, []byte(crashScenario), 0o600); err != nil {
		return nil, err
	}
	s, err := b.startServer(ctx, unsynced, "--scenario="+scenario)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return nil, err
	}
	calm, troubled, err := measureBeside(ctx, b.size.beside,
		func() (float64, error) { return p50(ctx, 1, func() error { return s.send(ctx, id, oneWord) }) },
		func() (func() error, error) { return s.crashLoop(ctx, b.size.loops), nil })
	if err != nil {
		return nil, err
	}
	beside := fmt.Sprintf("send beside %d crash loops: ", b.size.loops)
	return []row{
		{beside + "p50", median(troubled), median(calm), "quiet", seconds, bound{}},
		{beside + "p99", p99(troubled), p99(calm), "quiet, p99", seconds, ratioAtMost(2)},
	}, nil
}

// measureBeside takes a figure n times in quiet, then as often in trouble, and so on.
// A first round is not counted. trouble returns once there is some, and what ends it.
func measureBeside(ctx context.Context, n int, take step, trouble func() (end func() error, err error)) (calm, troubled []float64, err error) {
	breathing := func() ([]float64, error) {
		taken := make([]float64, 0, n)
		ticker := time.NewTicker(breath)
		defer ticker.Stop()
		for range n {
			<-ticker.C
			one, err := take()
			if err := errors.Join(ctx.Err(), err); err != nil {
				return nil, err
			}
			taken = append(taken, one)
		}
		return taken, nil
	}
	for round := range besideRounds + 1 {
		quiet, err := breathing()
		if err != nil {
			return nil, nil, err
		}
		end, err := trouble()
		if err != nil {
			return nil, nil, err
		}
		loud, err := breathing()
		if err := errors.Join(err, end()); err != nil {
			return nil, nil, err
		}
		if round > 0 {
			calm, troubled = append(calm, quiet...), append(troubled, loud...)
		}
	}
	return calm, troubled, nil
}

// crashLoop keeps n agents crashing, and returns once each has. end tells what
// went wrong.
func (s *server) crashLoop(ctx context.Context, n int) (end func() error) {
	looping, stop := context.WithCancel(ctx)
	errs := make([]error, n)
	var all, crashed sync.WaitGroup
	crashed.Add(n)
	for i := range n {
		first := sync.OnceFunc(crashed.Done)
		all.Go(func() {
			defer first()
			for looping.Err() == nil && errs[i] == nil {
				errs[i] = s.crashUntilFailed(ctx, looping, first)
			}
		})
	}
	crashed.Wait()
	return func() error {
		stop()
		all.Wait()
		return errors.Join(errs...)
	}
}

// crashUntilFailed makes an agent and has it crash until it is given up, or
// looping ends. It calls crashed after each crash.
func (s *server) crashUntilFailed(ctx, looping context.Context, crashed func()) (err error) {
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.destroy(ctx, id)) }()
	for {
		err := s.send(looping, id, crashNow)
		switch {
		case looping.Err() != nil:
			return nil
		case refusedAs(err, "AGENT_FAILED"):
			return nil
		case !refusedAs(err, "CHILD_CRASHED"):
			return fmt.Errorf("send that crashes its child: %w", err)
		}
		crashed()
	}
}
