package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// running says that an agent runs in a way that does not allow what was asked for.
func running(problem, way string) error {
	return &api.Error{Kind: api.KindAgentRunning, Details: problem, Suggestions: []string{way}}
}

// Rename gives a session another name. If its agent runs it must be idle: its process is
// stopped, and one with the new name goes on. What is asked of the old name meanwhile waits,
// and finds no agent then.
func (r *Registry) Rename(ctx context.Context, old, name string) error {
	if old == name {
		return &sessions.Error{Name: name, Err: sessions.ErrExists}
	}
	if err := r.CheckName(name); err != nil {
		return err
	}
	if err := arrive(ctx, r, old); err != nil {
		return err
	}
	held, err := r.o.Sessions.Created(old) // nobody starts them meanwhile
	if err != nil {
		return err
	}
	held = append(held, old, name)
	slices.Sort(held) // in one order, so that two of them do not wait for each other
	for _, id := range slices.Compact(held) {
		defer r.locks.Lock(id)()
	}
	if _, err := r.o.Supervisor.Agent(name); err == nil || r.o.Sessions.Exists(name) {
		return &sessions.Error{Name: name, Err: sessions.ErrExists}
	}
	if _, err := r.o.Sessions.Summary(old); err != nil { // it was there before the locks
		return err
	}
	if err := errors.Join(movable(r, old), r.o.Sessions.Changeable(), r.SaveNarrowed(ctx, old)); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // half of it would be an agent that is gone
	if err := claimSession(ctx, r, name); err != nil {
		return err
	}
	defer func() { release(ctx, r, old); release(ctx, r, name) }() // that of the two which is not there
	now := old
	_, err = r.o.Supervisor.Agent(old)
	runs := err == nil
	if runs {
		err := r.o.Supervisor.RemoveIdle(ctx, old)
		if errors.Is(err, supervisor.ErrBusy) {
			return running(
				fmt.Sprintf("agent %s is busy", old), "Rename it when its sends have ended; or copy it with clone_session, at any time.",
			)
		}
		if err != nil {
			return err
		}
	}
	r.replaced(old)
	r.replaced(name)
	if err = leave(r, old); err == nil {
		err = r.o.Sessions.Rename(old, name)
	}
	if err == nil {
		now = name
		ship(ctx, r, name) // before the other machines forget the old one
	}
	if err == nil && r.last.is(old) {
		r.SetLast(name)
	}
	if runs {
		if _, failed := r.start(ctx, api.CreateAgentParams{AgentID: &now}, parent{}); failed != nil {
			r.log.Warn("start the renamed agent; its next request tries it again", zap.String("agent", now), zap.Error(failed))
		}
	}
	return err
}

// replaced says that what is saved under a name is about to become another session's,
// or none's.
func (r *Registry) replaced(id string) {
	r.o.Store.Forget(id)
	r.o.Supervisor.Forget(id)
}

// movable reports why an agent that runs cannot get another name for the sake of
// others.
func movable(r *Registry, id string) error {
	if created := r.Created(id); len(created) > 0 {
		return running(
			fmt.Sprintf("agent %s has agents that it created: %d", id, len(created)),
			"Destroy them first; or copy it with clone_session, at any time.",
		)
	}
	return nil
}
