package task

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// watch waits for the first attempt at a task that an agent works on.
type watch struct {
	id, agent string                        // agent "" is one of the task's own
	begun     chan *supervisor.Subscription // gets one place in the agent's events, before those of the task
}

// meant reports whether an attempt is one that the watch waits for.
func (w *watch) meant(a *attempt) bool {
	return w.id == a.id && (w.agent == a.agent && a.agent != "" || w.agent == "" && strings.HasPrefix(a.agent, api.TaskPrefix))
}

// watch begins to wait for a task, which may be under way. unwatch must be called.
func (r *Runner) watch(id, agent string) (w *watch, unwatch func()) {
	w = &watch{id: id, agent: agent, begun: make(chan *supervisor.Subscription, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[w] = struct{}{}
	for _, a := range r.working {
		if w.meant(a) {
			r.tell(w, a)
			break
		}
	}
	return w, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, w)
		select {
		case sub := <-w.begun:
			sub.Close()
		default:
		}
	}
}

// tell tells a watch that an attempt is under way. mu is held.
func (r *Runner) tell(w *watch, a *attempt) {
	if sub, err := a.worker.Subscribe(a.after); err == nil { // else it is being removed, and the task fails
		w.begun <- sub
		delete(r.watches, w)
	}
}

// Stream answers a task as it goes (SPEC §6.7): do does it, or waits for it, and has its own ways to
// end with ctx. What the agent says and does is told from its first turn on, also where another
// request has begun it. agent is the one that works on it; "" is one of its own. A task that ends without a turn is answered as any
// other call. If the client leaves, ctx of do ends.
func Stream[R any](ctx context.Context, r *Runner, out *rpc.Stream, id, agent string, do func(ctx context.Context) (R, error)) (result R, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, unwatch := r.watch(id, agent)
	defer unwatch()
	working, finished := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		defer finished()
		result, err = do(ctx)
	})
	s := &stream{out: out, id: uuid.NewString(), task: id, ids: TurnIDs(id, api.MaxAttempts)}
	told := s.follow(ctx, w, working)
	if told != nil {
		cancel()
	}
	work.Wait()
	switch {
	case told != nil:
		err = told
	case s.opened:
		_ = out.Notify(api.StreamEnd, api.StreamEndParams{StreamID: s.id, TotalChunks: s.chunks}) // the answer fails as well
	}
	return result, err
}

// stream tells of one task.
type stream struct {
	out      *rpc.Stream
	id, task string
	ids      []string // of the task's turns
	opened   bool
	chunks   uint64
	turns    int  // of the task that have begun
	within   bool // one of them runs
	text     string
}

// follow tells what the agent does until working ends, with the task. Errors are rpc.ErrSlowClient and that
// of ctx.
func (s *stream) follow(ctx context.Context, w *watch, working context.Context) error {
	var sub *supervisor.Subscription
	beat := time.NewTicker(s.out.Heartbeat)
	defer beat.Stop()
	for sub == nil {
		select {
		case sub = <-w.begun:
		case <-working.Done():
			select {
			case sub = <-w.begun: // it was quick
			default:
				return ctx.Err()
			}
		case <-beat.C:
			if err := s.out.Beat(); err != nil {
				return err
			}
		}
	}
	defer sub.Close()
	s.opened = true
	if err := s.out.Notify(api.StreamStart, api.StreamStartParams{StreamID: s.id, TaskID: s.task}); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(working, s.out.Heartbeat)
		events, err := sub.Next(wait)
		cancel()
		switch {
		case err == nil:
			err = s.tell(events)
		case working.Err() != nil, !errors.Is(err, context.DeadlineExceeded): // all was told, or the client lags too far behind to be told
			return ctx.Err()
		default:
			err = s.out.Beat()
		}
		if err != nil {
			return err
		}
	}
}

// tell tells what a batch of events has of the task's turns.
func (s *stream) tell(events []supervisor.Event) error {
	for _, e := range events {
		if err := s.event(e); err != nil {
			return err
		}
	}
	return s.flush()
}

func (s *stream) event(e supervisor.Event) error {
	told, err := protocol.Frame{Raw: e.Data}.DecodeStreamEvent()
	if err != nil {
		return nil //nolint:nilerr // another version's, which is nothing of ours
	}
	switch told := told.(type) {
	case protocol.TurnStart:
		if s.within = slices.Contains(s.ids, told.TurnID); !s.within {
			return nil
		}
		s.turns++
		if s.turns > 1 && s.chunks > 0 {
			if err := s.flush(); err != nil {
				return err
			}
			return s.out.Notify(api.StreamRestart, api.StreamRestartParams{StreamID: s.id, Attempt: s.turns})
		}
		return s.data(api.TaskDataParams{Progress: "started"})
	case protocol.TurnEnd: // of another one, that waited, the task's goes on
		s.within = s.within && !slices.Contains(s.ids, told.TurnID)
	case protocol.MessageUpdate:
		if s.within {
			return s.update(told.Event)
		}
	}
	return nil
}

func (s *stream) update(e protocol.AssistantEvent) error {
	switch e := e.(type) {
	case protocol.TextDelta:
		s.text += e.Delta
		return nil
	case protocol.ToolcallStart:
		return s.data(api.TaskDataParams{Tool: &api.TaskTool{ToolID: e.ToolID, ToolName: e.ToolName, Status: "started"}})
	case protocol.ToolcallResult:
		return s.data(api.TaskDataParams{Tool: &api.TaskTool{ToolID: e.ToolID, Status: "ended", IsError: e.IsError}})
	case protocol.Retry, protocol.Fallback, protocol.CompactionStart:
		return s.data(api.TaskDataParams{Progress: e.Name()})
	default:
		return nil
	}
}

// data sends what is not text, after the text that came before.
func (s *stream) data(p api.TaskDataParams) error {
	if err := s.flush(); err != nil {
		return err
	}
	s.chunks++
	p.StreamID, p.Sequence = s.id, s.chunks
	return s.out.Notify(api.StreamData, p)
}

func (s *stream) flush() error {
	if s.text == "" {
		return nil
	}
	text := s.text
	s.text = ""
	return s.data(api.TaskDataParams{Chunk: text})
}
