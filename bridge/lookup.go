package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// labelParent is the label that names an agent's parent.
const labelParent = "parent_agent_id"

// maxDepth is how many ancestors an agent may have.
const maxDepth = 5

// agent finds the agent of that id. One that is saved and does not run is
// started and continues its conversation; requests that come meanwhile wait
// for that start. A client that leaves does not stop it.
func (s *Server) agent(ctx context.Context, id string) (*supervisor.Agent, error) {
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		return a, nil
	}
	defer s.locks.lock(id)()
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		return a, nil
	}
	if !s.o.Sessions.Exists(id) {
		return nil, &agentError{id: id, err: supervisor.ErrNotFound}
	}
	return s.start(ctx, api.CreateAgentParams{AgentID: &id})
}

// start launches the agent that p describes. The lock of its id is held.
func (s *Server) start(ctx context.Context, p api.CreateAgentParams) (*supervisor.Agent, error) {
	id := *p.AgentID
	spec, err := s.o.Spec(p)
	if _, ok := errors.AsType[*api.ParamError](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, &supervisor.StartError{Err: err}
	}
	spec.ID = id
	if p.ParentAgentID != nil {
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[labelParent] = *p.ParentAgentID
	}
	a, err := s.o.Supervisor.Start(context.WithoutCancel(ctx), spec)
	if errors.Is(err, supervisor.ErrExists) {
		return nil, &agentError{id: id, err: supervisor.ErrExists}
	}
	return a, named(id, err)
}

// inherit applies the rule that an agent gets at most the permissions of the
// one that it is made for: sandboxed unless asked for more, and never more
// than its parent has.
func (s *Server) inherit(p *api.CreateAgentParams) error {
	if p.ParentAgentID == nil {
		return nil
	}
	parent, err := s.o.Supervisor.Agent(*p.ParentAgentID)
	if err != nil {
		return api.Invalid("parent_agent_id", "no agent %s runs", *p.ParentAgentID)
	}
	info := parent.Info()
	have := api.PresetSandboxed // until it has said otherwise
	if info.Update != nil {
		have = info.Update.Preset
	}
	if p.Preset == nil {
		sandboxed := api.PresetSandboxed
		p.Preset = &sandboxed
	}
	if want := *p.Preset; !within(want, have) {
		return api.Invalid("preset", "%s is more than the parent's %s", want, have)
	}
	return s.checkDepth(info)
}

// within reports whether an agent whose parent has a preset may have want.
func within(want, have string) bool {
	return want == have || want == api.PresetSandboxed || want == api.PresetTrusted && have == api.PresetYolo
}

func (s *Server) checkDepth(parent supervisor.Info) error {
	depth := 1
	for parent.Labels[labelParent] != "" {
		if depth++; depth > maxDepth {
			return api.Invalid("parent_agent_id", "more than %d agents deep", maxDepth)
		}
		grandparent, err := s.o.Supervisor.Agent(parent.Labels[labelParent])
		if err != nil {
			return nil // the rest of the line is gone
		}
		parent = grandparent.Info()
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
