package agents

import (
	"context"
	"errors"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// Load starts the agent id from the session name; under another name, from a
// copy of it. The last session's agent may run already.
func (r *Registry) Load(ctx context.Context, name, id string, p api.LoadSessionParams) (a *supervisor.Agent, restored bool, err error) {
	if err := arrive(ctx, r, name); err != nil {
		return nil, false, err
	}
	defer r.locks.Lock(id)()
	return load(ctx, r, name, id, p, nil)
}

// Fork starts the agent id from a copy of the session name that ends before that message, by its
// place; nil is all. id is not name.
func Fork(ctx context.Context, r *Registry, name, id string, message *uint64) (*supervisor.Agent, error) {
	if err := arrive(ctx, r, name); err != nil {
		return nil, err
	}
	defer r.locks.Lock(id)()
	if name == id {
		return nil, rpc.AgentExists(id)
	}
	a, _, err := load(ctx, r, name, id, api.LoadSessionParams{}, message)
	return a, err
}

// load is Load; a copy has the messages before the one at that place, nil for all. The lock of id is held.
func load(
	ctx context.Context, r *Registry, name, id string, p api.LoadSessionParams, before *uint64,
) (a *supervisor.Agent, restored bool, err error) {
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		if id == name && p.Preset == nil && p.Model == nil {
			return a, false, nil
		}
		return nil, false, rpc.AgentExists(id)
	}
	saved, err := r.o.Sessions.Summary(name)
	if err != nil {
		return nil, false, err
	}
	if err := checkWithin(r, saved, p.Preset); err != nil {
		return nil, false, err
	}
	if id != name {
		if err := r.SaveNarrowed(ctx, name); err != nil {
			return nil, false, err
		}
		if err := claimSession(ctx, r, id); err != nil {
			return nil, false, err
		}
		defer release(ctx, r, id) // if nothing comes of it
		r.replaced(id)
		if err := r.o.Sessions.CloneBefore(name, id, before); err != nil {
			return nil, false, err
		}
	}
	a, err = r.start(ctx, api.CreateAgentParams{AgentID: &id, Preset: p.Preset, Model: p.Model}, parent{})
	if err != nil && id != name {
		if gone, ok := errors.AsType[*MissingDirError](err); ok { // of the copy
			gone.Session = name
			err = gone.apiError()
		}
		err = errors.Join(err, r.o.Sessions.Delete(id)) // nobody asked for a copy alone
	}
	return a, err == nil, err
}

// checkWithin refuses a preset that is more than the session has: load_session does not grant it.
func checkWithin(r *Registry, saved transcript.Summary, preset *string) error {
	if preset == nil {
		return nil
	}
	want, err := r.Basis(*preset)
	if err != nil {
		return err
	}
	have := rights.Sandboxed // it ended before what it may do was written
	if held := saved.Settings.Permissions; held != nil {
		have = held.Preset
	}
	if basis, err := r.Basis(have); err == nil { // else the start says what is wrong with it
		have = basis
	}
	if rights.MinPreset(have, want) != want {
		return api.Invalid("preset", "%s is more than the session has, which is %s: load it without preset, and set_permissions may widen it", *preset, have)
	}
	return nil
}

// Clone copies a session.
func (r *Registry) Clone(ctx context.Context, src, dest string) error {
	if err := r.CheckName(dest); err != nil {
		return err
	}
	if err := arrive(ctx, r, src); err != nil {
		return err
	}
	defer r.locks.Lock(dest)()
	if _, err := r.o.Supervisor.Agent(dest); err == nil {
		return &sessions.Error{Name: dest, Err: sessions.ErrExists}
	}
	if err := r.SaveNarrowed(ctx, src); err != nil {
		return err
	}
	if err := claimSession(ctx, r, dest); err != nil {
		return err
	}
	defer release(ctx, r, dest) // if nothing comes of it
	r.replaced(dest)
	return r.o.Sessions.Clone(src, dest)
}

// SaveNarrowed sees that the session of an agent that runs says of it no more than it
// may do, before it is copied: else the copy could do more.
func (r *Registry) SaveNarrowed(ctx context.Context, id string) error {
	a, err := r.o.Supervisor.Agent(id)
	if err != nil {
		return nil // what the session says is what there is
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.CommandTimeout)
	defer cancel()
	return a.SaveNarrowed(ctx)
}

// DeleteSession deletes a session, and with it an agent that has no process and
// is not to get one by itself. deleted is false if there was no such session.
func (r *Registry) DeleteSession(ctx context.Context, name string) (deleted bool, err error) {
	defer r.locks.Lock(name)()
	if a, err := r.o.Supervisor.Agent(name); err == nil {
		const way = "End it first, with destroy_agent."
		if state := a.Info().State; state != supervisor.Stopped && state != supervisor.Failed {
			return false, running(fmt.Sprintf("agent %s runs", name), way)
		}
		if created := r.Created(name); len(created) > 0 {
			return false, running(fmt.Sprintf("agent %s has agents that it created: %d", name, len(created)), way)
		}
		if err := r.o.Supervisor.Remove(context.WithoutCancel(ctx), name); err != nil {
			return false, err
		}
	}
	var unread bool // it is here by the claim, and cannot be read: it is deleted all the same
	if !r.o.Sessions.There(name) {
		err := prepare(ctx, r, name)
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Kind == api.KindNoQuorum {
			return false, err
		}
		unread = err != nil
	}
	if err := forget(ctx, r, name); err != nil {
		return false, err
	}
	r.replaced(name)
	err = r.o.Sessions.Delete(name)
	release(ctx, r, name)
	if errors.Is(err, sessions.ErrNotFound) {
		return unread, nil
	}
	return err == nil, err
}
