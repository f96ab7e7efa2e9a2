package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/proctree"
)

const (
	// killedAgents is how many agents talk, and are killed, at once.
	killedAgents = 16
	// killsPerAgent is how often one agent is killed before another takes over: fewer
	// times than it would be given up for.
	killsPerAgent = 2
)

// kills are the figures of children that are killed while they work: what was
// acknowledged and is gone, and what the server keeps of them.
func (b *bench) kills(ctx context.Context, _ *server) ([]row, error) {
	baseline, err := b.runWithKills(ctx, 1, 1)
	if err != nil {
		return nil, err
	}
	got, err := b.runWithKills(ctx, killedAgents, b.size.kills)
	if err != nil {
		return nil, err
	}
	after := fmt.Sprintf("after %d kills", b.size.kills)
	none := func(figure string, n int) row { return row{figure, float64(n), 0, after, count, atMost(0)} }
	return []row{
		none(fmt.Sprintf("answers lost of %d acknowledged", got.acknowledged), got.lost),
		none("processes of the server left", got.processes),
		none("descriptors left", got.descriptors),
		none("goroutines left", got.goroutines-baseline.goroutines),
	}, nil
}

// killResult is what the kills have cost. The differences are to before.
type killResult struct {
	acknowledged, lost     int
	processes, descriptors int
	goroutines             int // in all
}

// runWithKills has some workers talk to agents on one server, which are killed meanwhile,
// so many times in all.
func (b *bench) runWithKills(ctx context.Context, workers, kills int) (t killResult, err error) {
	var log bytes.Buffer
	s, err := b.startServerTo(ctx, &log)
	if err != nil {
		return killResult{}, err
	}
	running := true
	defer func() {
		if running {
			err = errors.Join(err, s.stop())
		}
	}()
	left := new(atomic.Int64)
	if _, _, err := s.talkAndKill(ctx, left); err != nil { // what anything costs once is not the kills'
		return killResult{}, err
	}
	processes, open, err := s.stableCounts(ctx)
	if err != nil {
		return killResult{}, err
	}
	left.Store(int64(kills))
	var acknowledged, lost atomic.Int64
	errs := make([]error, workers)
	var fighting sync.WaitGroup
	for i := range workers {
		fighting.Go(func() {
			for left.Load() > 0 && errs[i] == nil {
				answers, forgotten, err := s.talkAndKill(ctx, left)
				acknowledged.Add(int64(answers))
				lost.Add(int64(forgotten))
				errs[i] = err
			}
		})
	}
	fighting.Wait()
	if err := errors.Join(errs...); err != nil {
		return killResult{}, err
	}
	t.acknowledged, t.lost = int(acknowledged.Load()), int(lost.Load())
	processesAfter, openAfter, err := s.stableCounts(ctx)
	if err != nil {
		return killResult{}, err
	}
	t.processes, t.descriptors = processesAfter-processes, openAfter-open
	running = false
	t.goroutines = s.quitAndCountGoroutines(&log)
	if t.goroutines == 0 {
		err = errors.New("a server that quit did not list its goroutines")
	}
	return t, err
}

// quitAndCountGoroutines ends a server in the way that makes it list its goroutines, and counts
// those of the program: the runtime has some of its own. log is what it writes.
func (s *server) quitAndCountGoroutines(log *bytes.Buffer) int {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	_ = s.cmd.Wait() // it ends by its signal
	return bytes.Count(log.Bytes(), []byte("\ncreated by ")) - bytes.Count(log.Bytes(), []byte("\ncreated by runtime."))
}

// talkAndKill makes an agent, talks to it, kills it while left allows it, at most
// lives times, and looks whether it remembers all that it has answered.
func (s *server) talkAndKill(ctx context.Context, left *atomic.Int64) (acknowledged, lost int, err error) {
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.destroy(ctx, id)) }()
	answered, said := map[string]bool{}, 0
	say := func() error {
		said++ // no word twice: one that was cut off is in the conversation, too
		word := id + "-" + strconv.Itoa(said)
		err := s.send(ctx, id, "echo "+word)
		if err == nil {
			answered[word] = true
		}
		return err
	}
	for range killsPerAgent {
		if err := say(); err != nil { // so that it is there
			return 0, 0, err
		}
		if left.Add(-1) < 0 {
			break
		}
		pid, err := s.pid(ctx, id)
		if err != nil {
			return 0, 0, err
		}
		killed := make(chan error, 1)
		time.AfterFunc(rand.N(5*time.Millisecond), func() { killed <- syscall.Kill(pid, syscall.SIGKILL) })
		for over := false; !over; {
			select {
			case err = <-killed:
				over = true
			default:
			}
			if failed := say(); !refusedAs(failed, "CHILD_CRASHED") {
				err = errors.Join(err, failed)
			}
			if err != nil && !over {
				err = errors.Join(err, <-killed)
				over = true
			}
		}
		if err != nil {
			return 0, 0, err
		}
	}
	kept, err := s.answers(ctx, id)
	for word := range answered {
		if !kept[word] {
			lost++
		}
	}
	return len(answered), lost, err
}

// answers are what an agent remembers to have said.
func (s *server) answers(ctx context.Context, id string) (map[string]bool, error) {
	var result api.GetMessagesResult
	if err := s.call(ctx, "/agent/"+id, "get_messages", `{}`, &result); err != nil {
		return nil, err
	}
	if uint64(len(result.Messages)) != result.Total {
		return nil, fmt.Errorf("conversation of %s has %d messages, %d shown", id, result.Total, len(result.Messages))
	}
	said := map[string]bool{}
	for _, m := range result.Messages {
		if m.Role == protocol.RoleAssistant {
			said[m.Content] = true
		}
	}
	return said, nil
}

// stableCounts closes our connections and returns how many processes and
// descriptors the server has once that has not changed for half a second.
func (s *server) stableCounts(ctx context.Context) (processes, open int, err error) {
	s.client.CloseIdleConnections()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for same := 0; same < 10; same++ {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-ticker.C:
		}
		tree, err := proctree.Descendants(s.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		now, err := descriptors(s.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		if now != open || len(tree) != processes {
			processes, open, same = len(tree), now, 0
		}
	}
	return processes, open, nil
}

// descriptors is how many a process has open.
func descriptors(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open), err
}
