package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// running says that an agent runs in a way that does not allow what was asked for.
func running(problem, way string) error {
	return &api.Error{Kind: api.KindAgentRunning, Details: problem, Suggestions: []string{way}}
}

// renames remembers which agents go on under which names, for requests that came
// while they were renamed. The zero value is ready; it is safe for concurrent use.
type renames struct {
	mu    sync.Mutex // guards all below
	last  [64]*renaming
	begun uint64 // so many; the oldest is replaced by the next
	ended uint64 // so many
}

// renaming is one that is under way or over.
type renaming struct {
	agent weak.Pointer[supervisor.Agent] // nil if it did not run
	old   string
	now   string        // the name that it goes on by, once it is over
	place uint64        // among those that have ended, from 1; renames.mu guards it
	over  chan struct{} // closed then
}

// begin says that an agent is about to be renamed.
func (r *renames) begin(a *supervisor.Agent, old string) *renaming {
	one := &renaming{agent: weak.Make(a), old: old, now: old, over: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[r.begun%uint64(len(r.last))] = one
	r.begun++
	return one
}

func (r *renames) end(one *renaming) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	one.place = r.ended
	close(one.over)
}

// over is how many have ended.
func (r *renames) over() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// find is the last one that suits, of those that had not ended when over was
// since; nil if there is none.
func (r *renames) find(since uint64, suits func(*renaming) bool) *renaming {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := r.begun; n > 0 && n+uint64(len(r.last)) > r.begun; n-- {
		one := r.last[(n-1)%uint64(len(r.last))]
		if (one.place == 0 || one.place > since) && suits(one) {
			return one
		}
	}
	return nil
}

// following asks something of an agent. One that is being renamed takes nothing:
// then the one that goes on is asked, and returned.
func following[T any](ctx context.Context, s *Server, a *supervisor.Agent, ask func(*supervisor.Agent) (T, error)) (T, *supervisor.Agent, error) {
	for {
		answer, err := ask(a)
		if !errors.Is(err, supervisor.ErrNotFound) {
			return answer, a, err
		}
		one := s.renames.find(0, func(r *renaming) bool { return r.agent == weak.Make(a) })
		if one == nil {
			return answer, a, destroyed(a.ID(), err)
		}
		select {
		case <-one.over:
		case <-ctx.Done():
			return answer, a, ctx.Err()
		}
		if a, err = s.agent(ctx, one.now); err != nil {
			return answer, nil, err
		}
	}
}

func (s *Server) renameSession(ctx context.Context, _ *rpc.Call, p api.RenameSessionParams) (api.RenameSessionResult, error) {
	result := api.RenameSessionResult{Renamed: true, OldName: p.OldName, NewName: p.NewName}
	return result, s.rename(ctx, p.OldName, p.NewName)
}

// rename gives a session another name. If its agent runs it must be idle; its
// process is stopped, and one with the new name goes on.
func (s *Server) rename(ctx context.Context, old, name string) error {
	if old == name {
		return &sessions.Error{Name: name, Err: sessions.ErrExists}
	}
	if err := s.checkName(name); err != nil {
		return err
	}
	held, err := s.o.Sessions.Created(old) // nobody starts them meanwhile
	if err != nil {
		return err
	}
	held = append(held, old, name)
	slices.Sort(held) // in one order, so that two of them do not wait for each other
	for _, id := range slices.Compact(held) {
		defer s.locks.lock(id)()
	}
	if _, err := s.o.Supervisor.Agent(name); err == nil || s.o.Sessions.Exists(name) {
		return &sessions.Error{Name: name, Err: sessions.ErrExists}
	}
	if _, err := s.o.Sessions.Summary(old); err != nil { // it was there before the locks
		return err
	}
	if err := errors.Join(s.movable(old), s.o.Sessions.Changeable(), s.saveNarrowed(ctx, old)); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // half of it would be an agent that is gone
	again := api.CreateAgentParams{Restored: true}
	a, err := s.o.Supervisor.Agent(old)
	runs := err == nil
	one := s.renames.begin(a, old)
	defer s.renames.end(one)
	if runs {
		err := s.o.Supervisor.RemoveIdle(ctx, old)
		if errors.Is(err, supervisor.ErrBusy) {
			return running(
				fmt.Sprintf("agent %s is busy", old), "Rename it when its sends have ended; or copy it with clone_session, at any time.",
			)
		}
		if err != nil {
			return err
		}
	}
	s.moved(old)
	s.moved(name)
	err = s.o.Sessions.Rename(old, name)
	if err == nil {
		one.now = name
	}
	again.AgentID = &one.now
	if err == nil && s.last.is(old) {
		s.setLast(name)
	}
	if runs {
		if _, failed := s.start(ctx, again); failed != nil {
			s.log.Warn("start the renamed agent; its next request tries it again", zap.String("agent", *again.AgentID), zap.Error(failed))
		}
	}
	return err
}

// moved says that what is saved under a name is about to become another session's,
// or none's.
func (s *Server) moved(id string) {
	s.o.Moved(id)
	s.o.Supervisor.Forget(id)
}

// movable reports why an agent that runs cannot get another name for the sake of
// others.
func (s *Server) movable(id string) error {
	if created := s.created(id); len(created) > 0 {
		return running(
			fmt.Sprintf("agent %s has agents that it created: %d", id, len(created)),
			"Destroy them first; or copy it with clone_session, at any time.",
		)
	}
	return nil
}
