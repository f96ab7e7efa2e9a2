package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// agent finds the agent of that id. One that is saved and does not run is
// started and continues its conversation; requests that come meanwhile wait
// for that start. One that gets another name while it is looked for is found by
// that. A client that leaves does not stop it.
func (s *Server) agent(ctx context.Context, id string) (*supervisor.Agent, error) {
	since := s.renames.over()
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		return a, nil
	}
	unlock := s.locks.lock(id)
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		unlock()
		return a, nil
	}
	if s.o.Sessions.Exists(id) {
		defer unlock()
		return s.start(ctx, api.CreateAgentParams{AgentID: &id})
	}
	unlock()
	if one := s.renames.find(since, func(r *renaming) bool { return r.old == id }); one != nil {
		<-one.over // just now, or its lock would not be ours
		return s.agent(ctx, one.now)
	}
	return nil, rpc.AgentNotFound(id, supervisor.ErrNotFound)
}

// start launches the agent that p describes. The lock of its id is held.
func (s *Server) start(ctx context.Context, p api.CreateAgentParams) (*supervisor.Agent, error) {
	id := *p.AgentID
	if p.Preset != nil {
		if _, err := s.basis(*p.Preset); err != nil {
			return nil, err
		}
	}
	provenance, narrowed := protocol.Value(p.ParentAgentID), ""
	if p.Restored = p.Restored || s.o.Sessions.Exists(id); p.Restored {
		var began string
		began, narrowed = s.resume(&p)
		provenance = cmp.Or(provenance, began)
	} else if p.Cwd == nil {
		p.Cwd = p.DefaultCwd
	}
	started, err := s.addToTree(p)
	if err != nil {
		return nil, err
	}
	defer started()
	spec, err := s.o.Spec(p)
	if _, ok := errors.AsType[*api.ParamError](err); ok {
		return nil, err
	}
	if e, ok := errors.AsType[*GoneError](err); ok {
		return nil, e.apiError()
	}
	if err != nil {
		return nil, &supervisor.StartError{Err: err}
	}
	spec.ID = id
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	spec.Labels[labelParent] = protocol.Value(p.ParentAgentID)
	spec.Labels[labelProvenance] = provenance
	spec.Labels[labelDepth] = strconv.FormatUint(p.Depth, 10)
	spec.Labels[labelApprovals] = protocol.Value(p.Approvals)
	spec.Labels[labelNarrowed] = narrowed
	spec.Labels[labelLimits], spec.Labels[labelEnv] = digest(p.Limits), digest(p.Env)
	a, err := s.o.Supervisor.Start(context.WithoutCancel(ctx), spec)
	if errors.Is(err, supervisor.ErrExists) {
		return nil, rpc.AgentExists(id)
	}
	if err != nil && !p.Restored {
		err = errors.Join(err, s.unbegin(id))
	}
	return a, destroyed(id, err)
}

// unbegin removes the session that a child has begun before it failed, as there was no
// such agent.
func (s *Server) unbegin(id string) error {
	switch {
	case api.IsTemp(id):
		return s.o.Sessions.RemoveTemp(id)
	case s.o.Sessions.There(id):
		return s.o.Sessions.Delete(id)
	}
	return nil
}

// freeID makes an id of 8 hexadecimal digits that nobody uses.
func (s *Server) freeID() string {
	for {
		id := fmt.Sprintf("%08x", rand.Uint32())
		if _, err := s.o.Supervisor.Agent(id); err != nil && !s.o.Sessions.Exists(id) {
			return id
		}
	}
}

// destroyed gives an error of the agent id its name, if it says that the agent is gone and
// not which.
func destroyed(id string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Kind == api.KindAgentNotFound || !errors.Is(err, supervisor.ErrNotFound) {
		return err
	}
	return rpc.AgentNotFound(id, rpc.ErrDestroyed)
}
