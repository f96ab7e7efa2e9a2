package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// crashNow makes an agent of crashScenario end itself, at each prompt anew.
	crashNow      = "crash now"
	crashScenario = `{"turns":[{"match":"` + crashNow + `","steps":[{"crash":"kill"}]}],"after":"offline"}`
	// breath is the time between sends beside agents that misbehave.
	breath = 2 * time.Millisecond
	// stormCommand starts processes without a pause, from as many loops as agents may hope for.
	stormCommand = "for i in 1 2 3 4; do (while :; do /bin/true; done) & done; wait"
	// bigSession is how long a conversation is that takes long to restore, in bytes.
	bigSession = 100 << 20
	bigName    = "big"
)

// trouble is what others do beside a quiet agent. It returns once it has begun, and what
// ends it.
type trouble func(ctx context.Context, s *server) (end func() error, err error)

// beside is a group of figures: what a send to a quiet agent takes beside some trouble, and
// without, in turns. After each send comes an http echo, which shares nothing with the server
// but the processors: what the trouble adds to it, the kernel adds.
func (b *bench) beside(what string, begin trouble, prepare func(*server) error) group {
	return group{name: "fairness: " + what, take: func(ctx context.Context, _ *server) (_ []row, err error) {
		scenario := filepath.Join(b.dir, "crash.json")
		if err := os.WriteFile(scenario, []byte(crashScenario), 0o600); err != nil {
			return nil, err
		}
		s, err := b.startServer(ctx, unsynced, "--scenario="+scenario)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		if prepare != nil {
			if err := prepare(s); err != nil {
				return nil, err
			}
		}
		id := s.newID()
		if err := s.create(ctx, id); err != nil {
			return nil, err
		}
		events, done, err := s.subscribe(ctx, id)
		if err != nil {
			return nil, err
		}
		defer done()
		http, err := b.startHTTPEcho(ctx)
		if err != nil {
			return nil, err
		}
		defer http.close()
		var sends, echoes inBoth
		if err := inQuietAndTrouble(ctx, b.size.besideRounds, b.size.beside, func() (send, echo float64, err error) {
			if send, err = s.toldTurn(ctx, id, events); err != nil {
				return 0, 0, err
			}
			began := time.Now()
			err = http.post(ctx, 0)
			return send, time.Since(began).Seconds(), err
		}, &sends, &echoes, func() (func() error, error) { return begin(ctx, s) }); err != nil {
			return nil, err
		}
		return []row{
			sends.row("send beside "+what+": p50", p50th, bound{}),
			sends.row("send beside "+what+": p99", p99th, ratioAtMost(1.5)),
			echoes.row("http echo beside the same: p99", p99th, bound{}),
		}, nil
	}}
}

// toldTurn is how long a send takes until it is answered and the event of its end has come.
func (s *server) toldTurn(ctx context.Context, id string, events *bufio.Reader) (float64, error) {
	sent := make(chan error, 1)
	began := time.Now()
	go func() { sent <- s.send(ctx, id, oneWord) }()
	err := await(events, "event: agent_end")
	err = errors.Join(err, <-sent)
	return time.Since(began).Seconds(), err
}

// inBoth is what a figure was, in each round, in quiet and in trouble.
type inBoth struct{ quiet, beside [][]float64 }

// row has the median over all rounds.
func (b inBoth) row(name string, stat statistic, limit bound) row {
	of := func(rounds [][]float64) float64 {
		var each []float64
		for _, round := range rounds {
			each = append(each, stat.of(round))
		}
		return median(each)
	}
	return row{name, of(b.beside), of(b.quiet), "quiet", seconds, limit}
}

// inQuietAndTrouble takes two figures n times in quiet, then as often in trouble, and so on for
// some rounds, so that other load meets both. A first round is not counted.
func inQuietAndTrouble(ctx context.Context, rounds, n int, take func() (one, other float64, err error), ones, others *inBoth,
	begin func() (end func() error, err error),
) error {
	breathing := func(ones, others *[][]float64) error {
		one, other := make([]float64, n), make([]float64, n)
		ticker := time.NewTicker(breath)
		defer ticker.Stop()
		for i := range n {
			<-ticker.C
			var err error
			one[i], other[i], err = take()
			if err := errors.Join(ctx.Err(), err); err != nil {
				return err
			}
		}
		*ones, *others = append(*ones, one), append(*others, other)
		return nil
	}
	for range rounds + 1 {
		if err := breathing(&ones.quiet, &others.quiet); err != nil {
			return err
		}
		end, err := begin()
		if err != nil {
			return err
		}
		if err := errors.Join(breathing(&ones.beside, &others.beside), end()); err != nil {
			return err
		}
	}
	for _, of := range []*inBoth{ones, others} {
		of.quiet, of.beside = of.quiet[1:], of.beside[1:]
	}
	return nil
}

// keepDoing has n goroutines do something until end, and returns once each has begun, which
// f says by calling first. end tells what went wrong.
func keepDoing(ctx context.Context, n int, f func(ctx context.Context, first func()) error) (end func() error, err error) {
	doing, stop := context.WithCancel(ctx)
	errs := make([]error, n)
	var all, begun sync.WaitGroup
	begun.Add(n)
	for i := range n {
		first := sync.OnceFunc(begun.Done)
		all.Go(func() {
			defer first()
			for doing.Err() == nil && errs[i] == nil {
				errs[i] = f(doing, first)
			}
		})
	}
	begun.Wait()
	return func() error {
		stop()
		all.Wait()
		return errors.Join(errs...)
	}, nil
}

// crashLoops keeps n agents crashing at every prompt. They are asked again, and made anew
// when they are given up.
func crashLoops(n int) trouble {
	return func(ctx context.Context, s *server) (func() error, error) {
		return keepDoing(ctx, n, func(looping context.Context, crashed func()) error {
			id := s.newID()
			_, err := s.withAgent(ctx, id, func() (float64, error) {
				for {
					err := s.send(looping, id, crashNow)
					switch {
					case looping.Err() != nil, refusedAs(err, "AGENT_FAILED"):
						return 0, nil
					case !refusedAs(err, "CHILD_CRASHED"):
						return 0, fmt.Errorf("send that crashes its child: %w", err)
					}
					crashed()
				}
			})
			return err
		})
	}
}

// endlessTurn gives an agent, made with more members than its name, a prompt that keeps it
// busy, whose events somebody reads. It is an error if the turn ends by itself.
func endlessTurn(members, prompt string) trouble {
	return func(ctx context.Context, s *server) (end func() error, err error) {
		id := s.newID()
		if err := s.call(ctx, "/", "create_agent", `{"agent_id":"`+id+`"`+members+`}`, nil); err != nil {
			return nil, err
		}
		events, done, err := s.subscribe(ctx, id)
		if err != nil {
			return nil, errors.Join(err, s.destroy(ctx, id))
		}
		sent, read := make(chan error, 1), make(chan struct{})
		go func() { sent <- s.send(ctx, id, prompt) }()
		err = await(events, "event: message_update")
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, events) // it ends with the agent
		}()
		end = func() error {
			defer done()
			var early error
			select {
			case err := <-sent:
				early = fmt.Errorf("%q ended by itself: %w", prompt, err)
			default:
			}
			err := errors.Join(early, s.destroy(ctx, id))
			if early == nil {
				<-sent //nolint:errcheck // what a destroyed agent says
			}
			<-read
			return err
		}
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return end, nil
	}
}

// restores has an agent with a long conversation made and destroyed, again and again.
func restores(ctx context.Context, s *server) (func() error, error) {
	return keepDoing(ctx, 1, func(_ context.Context, begun func()) error {
		begun()
		return errors.Join(s.create(ctx, bigName), s.destroy(ctx, bigName))
	})
}

// saveBig saves a conversation of about bigSession for a server.
func (b *bench) saveBig(s *server) error {
	data, err := b.conversation(bigName, crashMessages)
	if err != nil {
		return err
	}
	first := bytes.IndexByte(data, '\n') + 1 // it is said once which session this is
	all := slices.Grow(slices.Clone(data[:first]), bigSession+len(data))
	for len(all) < bigSession {
		all = append(all, data[first:]...)
	}
	return os.WriteFile(s.session(bigName), all, 0o600)
}

// lists lists saved sessions, a page after the other, without a pause.
func lists(ctx context.Context, s *server) (func() error, error) {
	offset := 0
	return keepDoing(ctx, 1, func(_ context.Context, begun func()) error {
		defer begun()
		offset = (offset + pageSessions) % savedSessions
		return s.call(ctx, "/", "list_sessions", fmt.Sprintf(`{"offset":%d,"limit":%d}`, offset, pageSessions), nil)
	})
}
