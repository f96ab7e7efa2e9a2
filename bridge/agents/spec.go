package agents

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
)

// asked completes the parameters of create_agent by a name and by who calls. The error says
// what that one cannot ask for.
func (x Access) asked(c *rpc.Call, p *api.CreateAgentParams) error {
	if p.AgentID == nil {
		p.AgentID = new(x.r.FreeID(protocol.Value(p.Temporary)))
		c.Note("agent_id", *p.AgentID)
	}
	if err := x.r.CheckName(*p.AgentID); err != nil || c.By.Agent == nil {
		return err
	}
	by := c.By.Agent.AgentID
	if protocol.ValueOr(p.ParentAgentID, by) != by {
		return api.Invalid("parent_agent_id", "%s creates agents for itself alone", by)
	}
	if p.Env != nil {
		return api.Invalid("env", "%s cannot set it: that is for people", by)
	}
	p.ParentAgentID = &by
	return nil
}

// parent is an agent that another one is created for, and what it hands on.
type parent struct {
	agent  *supervisor.Agent
	labels supervisor.Labels
	state  protocol.State
}

// parentOf asks the parent that p names, if any, what it may do: an agent gets at most the
// permissions of the one that it is created for. The error says that there is no such parent,
// or that it cannot have such an agent.
func (x Access) parentOf(ctx context.Context, p api.CreateAgentParams) (up parent, err error) {
	if p.ParentAgentID == nil {
		return parent{}, nil
	}
	if up.agent, err = x.r.o.Supervisor.Agent(*p.ParentAgentID); err != nil {
		return parent{}, api.Invalid("parent_agent_id", "no agent %s runs", *p.ParentAgentID)
	}
	if up.labels = up.agent.Info().Labels; up.labels.Depth >= maxDepth {
		return parent{}, api.Invalid("parent_agent_id", "more than %d agents deep", maxDepth)
	}
	if up.state, err = Ask(ctx, x.r, up.agent, protocol.GetState{}); err != nil {
		return parent{}, err
	}
	preset := protocol.ValueOr(p.Preset, rights.Sandboxed)
	want, err := x.r.Basis(preset)
	if have := up.state.Preset; err == nil && rights.MinPreset(have, want) != want {
		err = api.Invalid("preset", "%s is more than the parent's %s", preset, have)
	}
	return up, err
}

// spec makes the spec of an agent of what was asked for, what its parent decides, and what its
// saved session does. It is sandboxed unless asked for more if it has a parent. The lock of
// its id is held.
func (r *Registry) spec(p api.CreateAgentParams, up parent) (supervisor.Spec, error) {
	s := supervisor.Spec{
		ID: *p.AgentID, Cwd: protocol.Value(p.Cwd), Model: protocol.Value(p.Model), Provider: protocol.Value(p.Provider),
		SystemPrompt: p.SystemPrompt, Env: protocol.Value(p.Env), Host: r.o.Host,
		Permissions: protocol.Permissions{
			Preset: protocol.Value(p.Preset), DisabledTools: protocol.Value(p.DisableTools),
			WritePaths: protocol.Value(p.AllowedWritePaths), Network: protocol.Value(p.Network),
		},
		Fresh: !r.o.Sessions.There(*p.AgentID), // [Registry.create] removes what a temporary one left
		Labels: supervisor.Labels{
			Parent: protocol.Value(p.ParentAgentID), Provenance: protocol.Value(p.ParentAgentID),
			Approvals: protocol.Value(p.Approvals), CwdLost: protocol.Value(p.CwdLost), EnvDigest: digest(p.Env),
		},
	}
	if paths := s.Permissions.WritePaths; len(paths) > 0 { // none says nothing of what may be read
		s.Permissions.AllowedPaths = paths
	}
	if p.Settings != nil {
		s.Settings = p.Settings.Turns()
	}
	if up.agent != nil {
		s.Permissions.Preset = cmp.Or(s.Permissions.Preset, rights.Sandboxed)
		s.Ceiling, s.Labels.Depth = ceilingOf(up.state), up.labels.Depth+1
	}
	switch preset := s.Permissions.Preset; {
	case preset == "":
	case preset == rights.Yolo && up.agent == nil && r.settings.Load().AllowYolo: // no agent gets here without a parent
		r.log.Warn("an agent is created as yolo: it does everything without asking, and nothing confines its programs", zap.String("agent", s.ID))
	default:
		if _, err := r.Basis(preset); err != nil {
			return supervisor.Spec{}, err
		}
	}
	if err := makeForeign(r, &s, p, up.agent != nil); err != nil {
		return supervisor.Spec{}, err
	}
	if s.Fresh {
		s.Cwd = cmp.Or(s.Cwd, up.state.Cwd, protocol.Value(p.DefaultCwd))
		s.Labels.Approvals = cmp.Or(s.Labels.Approvals, up.labels.Approvals)
		if s.Ceiling != nil && s.Cwd != "" { // nexus-child would refuse it, too, a process later
			if err := rights.CheckCwd(*s.Ceiling, realPath(s.Cwd)); err != nil {
				return supervisor.Spec{}, api.Denied("%v", err)
			}
		}
		return s, nil
	}
	if err := r.resume(&s); err != nil {
		return supervisor.Spec{}, err
	}
	if p.Limits != nil {
		return s, checkNotRaised(r.o.Admission, s.ID, *p.Limits)
	}
	return s, nil
}

// resume fills in what a saved session says of the agent's place among others. It comes
// under its creator again if that is still there, and is not another one that has its name.
// It gets a lower preset than the saved one if a request cannot give it that.
func (r *Registry) resume(s *supervisor.Spec) error {
	saved, err := r.o.Sessions.Summary(s.ID)
	if err != nil {
		return nil //nolint:nilerr // its start will say what is wrong with it
	}
	if err := resumeForeign(r, s, saved.Settings.Program); err != nil {
		return err
	}
	switch held := saved.Settings.Permissions; {
	case held == nil:
		// It ended before what it may do was written: nobody knows how little.
		s.Permissions.Preset = rights.Sandboxed
	case held.Preset == rights.Yolo && s.Permissions.Preset == "" && !r.settings.Load().AllowYolo:
		s.Permissions.Preset, s.Labels.NarrowedFrom = rights.Trusted, held.Preset
		r.log.Warn("a saved session is yolo, which no request grants: its agent is trusted; server.allow_yolo of the configuration lets it stay yolo",
			zap.String("agent", s.ID))
	}
	s.Labels.Cwd = protocol.Value(saved.Settings.Cwd)
	s.Labels.Depth = max(s.Labels.Depth, protocol.Value(saved.Settings.Depth))
	if protocol.Value(saved.Settings.Approvals) == api.ApprovalsAsk {
		s.Labels.Approvals = cmp.Or(s.Labels.Approvals, api.ApprovalsAsk)
	}
	s.Labels.CwdLost, s.Labels.LostCwd = cmp.Or(s.Labels.CwdLost, protocol.Value(saved.Settings.CwdLost)), saved.Settings.LostCwd
	s.Labels.Provenance = cmp.Or(s.Labels.Provenance, protocol.Value(saved.Settings.ParentAgentID))
	if line := r.line(saved); s.Labels.Parent == "" && len(line) > 0 {
		s.Labels.Parent, s.Ancestors = line[0], line[1:]
	}
	return nil
}

// ceilingOf is what an agent can hand on, by its state. One that does not say
// can hand on the least.
func ceilingOf(state protocol.State) *protocol.Permissions {
	if state.Permissions.Ceiling.Preset != "" {
		return &state.Permissions.Ceiling
	}
	return &protocol.Permissions{Preset: rights.Sandboxed, AllowedPaths: []string{state.Cwd}}
}

// Basis is the built-in preset that a preset is made of. The error, a
// *api.ParamError, is for one that there is not, or that cannot be had.
func (r *Registry) Basis(name string) (string, error) {
	if name == rights.Trusted || name == rights.Sandboxed {
		return name, nil
	}
	presets := r.settings.Load().Presets
	switch basis, ok := presets[name]; {
	case basis == rights.Yolo || name == rights.Yolo:
		return "", api.Invalid("preset", "yolo cannot be granted over RPC, but by create_agent if allow_yolo is true in server of the home's configuration")
	case ok:
		return basis, nil
	}
	names := []string{rights.Trusted, rights.Sandboxed}
	for _, known := range slices.Sorted(maps.Keys(presets)) {
		if presets[known] != rights.Yolo {
			names = append(names, known)
		}
	}
	return "", api.Invalid("preset", "want one of %s", strings.Join(names, ", ")).Near(name, names)
}
