package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// Resolve finds the agent of that id. One that is saved and does not run is
// started and continues its conversation; requests that come meanwhile wait
// for that start. A client that leaves does not stop it. The error is AGENT_NOT_FOUND, or
// that of the start; for a context [rpc.WithoutRestore] none is started.
func (r *Registry) Resolve(ctx context.Context, id string) (*supervisor.Agent, error) {
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		return a, nil
	}
	if err := r.Access().Certain(id); err != nil { // another machine may have it by now
		return nil, err
	}
	defer r.locks.Lock(id)()
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		return a, nil
	}
	if err := prepare(ctx, r, id); err != nil {
		return nil, err
	}
	if !rpc.Restores(ctx) || !r.o.Sessions.Exists(id) {
		return nil, notFound(r, id)
	}
	if err := claimFound(ctx, r, id); err != nil {
		return nil, err
	}
	return r.start(ctx, api.CreateAgentParams{AgentID: &id}, parent{})
}

// claimFound claims an agent that is saved here. Another machine may have had it since, and removed it: then there is none.
func claimFound(ctx context.Context, r *Registry, id string) error {
	err := claim(ctx, r, id)
	if e, ok := errors.AsType[*rpc.ClaimedError](err); ok {
		return hasByNow(e)
	}
	if err == nil && !r.o.Sessions.Exists(id) {
		release(ctx, r, id)
		return notFound(r, id)
	}
	return err
}

// there reports whether an agent runs or is saved here.
func there(r *Registry, id string) bool {
	_, err := r.o.Supervisor.Agent(id)
	return err == nil || r.o.Sessions.Exists(id)
}

// start claims and launches the agent that p asks for. The lock of its id is held.
func (r *Registry) start(ctx context.Context, p api.CreateAgentParams, up parent) (*supervisor.Agent, error) {
	err := claim(ctx, r, *p.AgentID)
	if e, ok := errors.AsType[*rpc.ClaimedError](err); ok {
		err = claimedElsewhere(e)
	}
	if err != nil {
		return nil, err
	}
	a, err := launch(ctx, r, p, up)
	if err != nil {
		release(ctx, r, *p.AgentID)
	}
	return a, err
}

// launch launches an agent that is claimed.
func launch(ctx context.Context, r *Registry, p api.CreateAgentParams, up parent) (*supervisor.Agent, error) {
	s, err := r.spec(p, up)
	if err != nil {
		return nil, err
	}
	started, err := r.tree.add(r.o.Supervisor, s)
	if err != nil {
		return nil, err
	}
	defer started()
	spec, err := r.o.Admission.Admit(s, p.Limits)
	if _, ok := errors.AsType[*api.ParamError](err); ok {
		return nil, err
	}
	if e, ok := errors.AsType[*MissingDirError](err); ok {
		return nil, e.apiError()
	}
	if err != nil {
		return nil, &supervisor.StartError{Err: err}
	}
	if dir := cmp.Or(spec.Cwd, spec.Labels.Cwd); dir != "" {
		spec.Labels.Cwd = realPath(dir)
	}
	a, err := r.o.Supervisor.Start(context.WithoutCancel(ctx), spec)
	if errors.Is(err, supervisor.ErrExists) {
		return nil, rpc.AgentExists(s.ID)
	}
	if err != nil && s.Fresh {
		err = errors.Join(err, rollback(r.o.Sessions, s.ID))
	}
	return a, Destroyed(s.ID, err)
}

// rollback removes the session that a child has begun before it failed, as there was no
// such agent.
func rollback(saved *sessions.Catalogue, id string) error {
	switch {
	case api.IsTemp(id):
		return saved.RemoveTemp(id)
	case saved.There(id):
		return saved.Delete(id)
	}
	return nil
}

// FreeID makes an id that nobody uses: 8 hexadecimal digits, or of a temporary agent .1, .2 and so on. Several
// machines would take the same of these, so their temporary agents have digits, too.
func (r *Registry) FreeID(temporary bool) string {
	for {
		id := fmt.Sprintf("%08x", rand.Uint32())
		switch {
		case temporary && r.o.Claims != nil:
			id = "." + id
		case temporary:
			id = fmt.Sprintf(".%d", r.temps.Add(1))
		}
		if _, err := r.o.Supervisor.Agent(id); err != nil && !r.o.Sessions.There(id) && !claimed(r, id) {
			return id
		}
	}
}

// Destroyed gives an error of the agent id its name, if it says that the agent is gone and
// not which.
func Destroyed(id string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Kind == api.KindAgentNotFound || !errors.Is(err, supervisor.ErrNotFound) {
		return err
	}
	return rpc.AgentNotFound(id, rpc.ErrDestroyed)
}
