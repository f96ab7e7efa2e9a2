package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// deaths are the figures of how soon it is known that a child was killed.
func (b *bench) deaths(ctx context.Context, s *server) ([]row, error) {
	bare := of(b.killWait(ctx))
	told := of(func() (float64, error) { return s.deathTold(ctx) })
	answered := of(func() (float64, error) { return s.deathAnswered(ctx) })
	return measure(ctx, b.size.deaths,
		figure{"child killed, event of it: p50", told, bare, "kill, wait", seconds, bound{}, p50th},
		figure{"the same: p99", told, bare, "kill, wait: p99", seconds, atMost(10e-3), p99th},
		figure{"child killed, its send answered: p50", answered, bare, "kill, wait", seconds, bound{}, p50th},
		figure{"the same: p99", answered, bare, "kill, wait: p99", seconds, atMost(10e-3), p99th},
	)
}

// killWait is how long a bare parent takes to see the end of a bare process
// that it kills.
func (b *bench) killWait(ctx context.Context) step {
	return func() (float64, error) {
		e, err := startEcho(exec.CommandContext(ctx, b.floor(), "echo"))
		if err != nil {
			return 0, err
		}
		began := time.Now()
		err = e.cmd.Process.Kill()
		e.close()
		return time.Since(began).Seconds(), err
	}
}

// deathTold kills the child of an idle agent and is how long it takes until a
// subscriber of the agent's events knows.
func (s *server) deathTold(ctx context.Context) (float64, error) {
	id := s.newID()
	return s.watched(ctx, id, func(events *bufio.Reader) (float64, error) {
		began, err := s.killed(ctx, id)
		if err == nil {
			err = await(events, "event: agent_state")
		}
		return time.Since(began).Seconds(), err
	})
}

// deathAnswered kills the child of an agent in the middle of a turn and is how
// long it takes until the sender has its answer.
func (s *server) deathAnswered(ctx context.Context) (float64, error) {
	id := s.newID()
	return s.watched(ctx, id, func(events *bufio.Reader) (float64, error) {
		sent := make(chan error, 1)
		go func() { sent <- s.send(ctx, id, "count to 1000000") }()
		early := await(events, "event: message_update")
		began, err := s.killed(ctx, id)
		answer := <-sent
		taken := time.Since(began).Seconds()
		if err = errors.Join(early, err); !refusedAs(answer, "CHILD_CRASHED") {
			err = errors.Join(err, fmt.Errorf("send to a child that was killed: %w", answer))
		}
		return taken, err
	})
}

// await reads an event stream up to a line that begins so.
func await(events *bufio.Reader, prefix string) error {
	for {
		line, err := events.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("event stream before %q: %w", prefix, err)
		}
		if bytes.HasPrefix(line, []byte(prefix)) {
			return nil
		}
	}
}
