package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// crashMessages is how long the conversation is that a crash interrupts.
const crashMessages = 1000

// spareTime is how long the next spare may take until it has started and rehearsed, so that it
// does that beside no figure and no floor.
const spareTime = 30 * time.Millisecond

// starts are the figures of what it takes to have an agent.
func (b *bench) starts(ctx context.Context, s *server) ([]row, error) {
	bare := of(b.forkExec(ctx))
	child := of(func() (float64, error) { return start(b.child(ctx)) })
	create := of(func() (float64, error) {
		id := s.newID()
		began := time.Now()
		if err := s.create(ctx, id); err != nil {
			return 0, err
		}
		taken := time.Since(began).Seconds()
		if err := s.destroy(ctx, id); err != nil {
			return 0, err
		}
		select {
		case <-time.After(spareTime):
			return taken, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	return measure(ctx, b.size.starts,
		figure{"nexus-child, start to ready: p50", child, bare, "fork-exec", seconds, atMost(10e-3), p50th},
		figure{"create_agent: p50", create, bare, "fork-exec", seconds, ratioAtMost(2), p50th},
	)
}

// child is nexus-child with a journal to begin, or to go on with, and no
// configuration but the built-in one.
func (b *bench) child(ctx context.Context, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "nexus-child"), append(flags, "--session-dir="+b.dir)...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "NEXUS_HOME="+b.dir, "GOMAXPROCS=1") // as a server starts it
	return cmd
}

// crashes are the figures of an agent that is killed and comes back with its
// conversation. Each has an agent of its own, since those that crash again and
// again are made to wait.
func (b *bench) crashes(ctx context.Context, s *server) ([]row, error) {
	short, err := b.conversation("brief", 2)
	if err != nil {
		return nil, err
	}
	long, err := b.conversation("crashed", crashMessages)
	if err != nil {
		return nil, err
	}
	bare := of(b.forkExec(ctx))
	crash := func(conversation []byte) *series {
		return of(func() (float64, error) { return s.crash(ctx, conversation) })
	}
	return measure(ctx, b.size.rounds,
		figure{"crash to ready, 2 messages: p50", crash(short), bare, "fork-exec", seconds, atMost(30e-3), p50th},
		figure{"crash to ready, " + strconv.Itoa(crashMessages) + " messages: p50", crash(long), bare, "fork-exec", seconds, atMost(30e-3), p50th},
	)
}

func (s *server) session(id string) string {
	return filepath.Join(s.home, "sessions", id+".jsonl")
}

// crash kills an agent that has this conversation and is how long it takes
// from the supervisor's starting it again, which is after the backoff, until
// it is ready.
func (s *server) crash(ctx context.Context, conversation []byte) (float64, error) {
	id := s.newID()
	if err := os.WriteFile(s.session(id), conversation, 0o600); err != nil {
		return 0, err
	}
	return s.watched(ctx, id, func(events *bufio.Reader) (float64, error) {
		if _, err := s.killed(ctx, id); err != nil {
			return 0, err
		}
		const state = `data: {"type":"agent_state","state":"`
		if err := await(events, state+"starting"); err != nil {
			return 0, err
		}
		began := time.Now()
		err := await(events, state+"ready")
		return time.Since(began).Seconds(), err
	})
}
