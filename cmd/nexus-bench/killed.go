package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"nexus.internal/protocol/proctree"
)

const (
	// toolAgents is how many agents run a tool when their server is killed.
	toolAgents = 8
	// plainTree is two processes named sleep below the tool's shell.
	plainTree = "sleep 300 & sleep 300 & wait"
	// fleeingTree is four, of which three have left the shell's session and two
	// their parent, and the shell ignores SIGTERM.
	fleeingTree = "trap '' TERM; setsid sh -c 'sleep 300 & sleep 300' & (setsid sleep 300 &) ; sleep 300; wait"
)

// killedServers are the figures of what is left by a server that is killed.
func (b *bench) killedServers(ctx context.Context, _ *server) ([]row, error) {
	bare := of(b.killParent(ctx))
	plain := of(func() (float64, error) { return b.killServer(ctx, plainTree, 2) })
	fleeing := of(func() (float64, error) { return b.killServer(ctx, fleeingTree, 4) })
	agents := strconv.Itoa(toolAgents) + " agents' "
	return measure(ctx, b.size.ends,
		figure{"server killed, until " + agents + "tools are gone: max", plain, bare, "bare parent, max", seconds, atMost(100e-3), highest},
		figure{"the same, tools that setsid and fork twice: max", fleeing, bare, "bare parent, max", seconds, atMost(100e-3), highest},
	)
}

// killParent kills a bare parent of bare processes that the kernel ends with it.
func (b *bench) killParent(ctx context.Context) step {
	return func() (float64, error) {
		e, err := startEcho(exec.CommandContext(ctx, b.self, roleArg, "parent", b.floor(), strconv.Itoa(toolAgents)))
		if err != nil {
			return 0, err
		}
		defer e.close()
		return killTree(e.cmd.Process.Pid)
	}
}

// killServer kills a server whose agents each run a shell command that has so
// many processes named sleep.
func (b *bench) killServer(ctx context.Context, command string, sleeps int) (taken float64, err error) {
	s, err := b.startServer(ctx)
	if err != nil {
		return 0, err
	}
	pid := s.cmd.Process.Pid
	var sending sync.WaitGroup
	defer sending.Wait()
	sent := make(chan error, toolAgents) // the sends that ended before they should
	for range toolAgents {
		id := s.newID()
		if err := s.call(ctx, "/", "create_agent", `{"agent_id":"`+id+`","preset":"sandboxed"}`, nil); err != nil {
			return 0, errors.Join(err, s.stop())
		}
		sending.Go(func() { sent <- s.send(ctx, id, "run "+command) })
	}
	if err := awaitProcesses(ctx, pid, "sleep", toolAgents*sleeps, sent); err != nil {
		return 0, errors.Join(err, s.stop())
	}
	taken, err = killTree(pid)
	_ = s.stop() // it was killed
	return taken, err
}

// awaitProcesses returns once n processes of that name descend from one, and
// fails when something ends before.
func awaitProcesses(ctx context.Context, pid int, name string, n int, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		all, err := proctree.Descendants(pid)
		if err != nil {
			return err
		}
		count := 0
		for _, pid := range all {
			if p, err := proctree.ReadStat(pid); err == nil && p.Name == name && !p.Ended() {
				count++
			}
		}
		if count == n {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("a command ended early: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("there are %d processes %q, want %d: %w", count, name, n, ctx.Err())
		case <-ticker.C:
		}
	}
}
