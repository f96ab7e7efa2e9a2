package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// floods are the figures of an agent's events beside another's that does
// nothing but talk, to somebody who reads all of it.
func (b *bench) floods(ctx context.Context, s *server) ([]row, error) {
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return nil, err
	}
	events, done, err := s.subscribe(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	calm, troubled, err := measureBeside(ctx, b.size.beside,
		func() (float64, error) { // from a prompt to the event of its end
			sent := make(chan error, 1)
			began := time.Now()
			go func() { sent <- s.send(ctx, id, oneWord) }()
			err := await(events, "event: agent_end")
			taken := time.Since(began).Seconds()
			return taken, errors.Join(err, <-sent)
		},
		func() (func() error, error) { return s.flood(ctx) })
	if err != nil {
		return nil, err
	}
	return []row{
		{"event beside a flood: p50", median(troubled), median(calm), "quiet", seconds, bound{}},
		{"what a flood adds to it: p99", max(p99(troubled)-p99(calm), 0), p99(calm), "quiet, p99", seconds, atMost(10e-3)},
	}, nil
}

// flood has an agent talk without a pause, and returns once it does. It is an
// error if it ends by itself.
func (s *server) flood(ctx context.Context) (end func() error, err error) {
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return nil, err
	}
	events, done, err := s.subscribe(ctx, id)
	if err != nil {
		return nil, errors.Join(err, s.destroy(ctx, id))
	}
	sent, read := make(chan error, 1), make(chan struct{})
	go func() { sent <- s.send(ctx, id, "flood 10000000") }()
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
			early = fmt.Errorf("the flood ended by itself: %w", err)
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
