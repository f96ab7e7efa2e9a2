package agents

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// maxDepth is how many ancestors an agent may have.
const maxDepth = 5

// ApplyParentLimits applies the rule that an agent gets at most the permissions of the
// one that it is made for: sandboxed unless asked for more, never more than its
// parent has now, and in its directory unless told otherwise. It returns the
// parent; nil if there is none.
func (r *Registry) ApplyParentLimits(ctx context.Context, p *AgentSpec) (*supervisor.Agent, error) {
	if p.ParentAgentID == nil {
		return nil, nil
	}
	parent, err := r.o.Supervisor.Agent(*p.ParentAgentID)
	if err != nil {
		return nil, api.Invalid("parent_agent_id", "no agent %s runs", *p.ParentAgentID)
	}
	info := parent.Info()
	if p.Depth = info.Labels.Depth + 1; p.Depth > maxDepth {
		return nil, api.Invalid("parent_agent_id", "more than %d agents deep", maxDepth)
	}
	saved := r.o.Sessions.Exists(*p.AgentID) // then it has a directory and a way to be approved of its own
	state, err := Ask(ctx, r, parent, protocol.GetState{})
	if err != nil {
		return nil, err
	}
	p.Ceiling = ceilingOf(state)
	if p.Preset == nil {
		p.Preset = new(rights.Sandboxed)
	}
	want, err := r.Basis(*p.Preset)
	if err != nil {
		return nil, err
	}
	if have := state.Preset; rights.MinPreset(have, want) != want {
		return nil, api.Invalid("preset", "%s is more than the parent's %s", *p.Preset, have)
	}
	if p.Cwd == nil && state.Cwd != "" && !saved {
		p.Cwd = &state.Cwd
	}
	if asks := info.Labels.Approvals; p.Approvals == nil && asks != "" && !saved {
		p.Approvals = &asks
	}
	return parent, nil
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
		return "", api.Invalid("preset", "yolo cannot be granted over RPC")
	case ok:
		return basis, nil
	}
	names := []string{rights.Trusted, rights.Sandboxed}
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		if presets[name] != rights.Yolo {
			names = append(names, name)
		}
	}
	return "", api.Invalid("preset", "want one of %s", strings.Join(names, ", "))
}

// resume fills in what a saved session says of the agent's place among others,
// and returns who began it; "" for a person. It comes under its creator again
// if that is still there, and is not another one that has its name. narrowed is the
// saved preset if the agent gets a lower one because a request cannot give it that.
func (r *Registry) resume(p *AgentSpec) (provenance, narrowed string) {
	saved, err := r.o.Sessions.Summary(*p.AgentID)
	if err != nil {
		return "", "" // its start will say what is wrong with it
	}
	switch held := saved.Settings.Permissions; {
	case held == nil:
		// It ended before what it may do was written: nobody knows how little.
		p.Preset = new(rights.Sandboxed)
	case held.Preset == rights.Yolo && p.Preset == nil && !r.settings.Load().AllowYolo:
		p.Preset, narrowed = new(rights.Trusted), held.Preset
		r.log.Warn("a saved session is yolo, which no request grants: its agent is trusted; server.allow_yolo of the configuration lets it stay yolo",
			zap.String("agent", *p.AgentID))
	}
	p.Depth = max(p.Depth, protocol.Value(saved.Settings.Depth))
	if protocol.Value(saved.Settings.Approvals) == api.ApprovalsAsk && p.Approvals == nil {
		p.Approvals = new(api.ApprovalsAsk)
	}
	provenance = protocol.Value(saved.Settings.ParentAgentID)
	if line := r.line(saved); p.ParentAgentID == nil && len(line) > 0 {
		p.ParentAgentID, p.Ancestors = &line[0], line[1:]
	}
	return provenance, narrowed
}

// line are the agents above one by what is saved, its creator first, as far as
// they are still there.
func (r *Registry) line(saved transcript.Summary) (line []string) {
	for range maxDepth {
		id := protocol.Value(saved.Settings.ParentAgentID)
		if id == "" {
			break
		}
		creator, err := r.o.Sessions.Summary(id)
		if err != nil || creator.Header.CreatedAt.After(saved.Header.CreatedAt) {
			break
		}
		line, saved = append(line, id), creator
	}
	return line
}

// Descends reports whether an agent was created by the other one, or by one that
// was, and so on.
func (r *Registry) Descends(id, ancestor string) bool {
	for range maxDepth + 1 {
		a, err := r.o.Supervisor.Agent(id)
		if err != nil {
			return false
		}
		if id = a.Info().Labels.Parent; id == ancestor {
			return true
		}
	}
	return false
}

// Destroy removes an agent for a call, and then all that were created for it. An agent that
// is being created for it meanwhile either is seen here or sees that it is gone.
// supervisor.ErrNotFound if there was none.
func (r *Registry) Destroy(ctx context.Context, c *rpc.Call, id string) error {
	created, err := r.remove(ctx, id)
	if err != nil {
		return err
	}
	var removals sync.WaitGroup
	for _, id := range created {
		removals.Go(func() {
			if err := r.DestroyFor(ctx, c, id); err != nil {
				r.log.Error("destroy an agent with its creator", zap.String("agent", id), zap.Error(err))
			}
		})
	}
	removals.Wait()
	return nil
}

// remove ends one agent, and returns those that were created for it. A temporary
// one's session goes with it, unless a person used it last.
func (r *Registry) remove(ctx context.Context, id string) (created []string, err error) {
	defer r.locks.Lock(id)()
	if err := r.o.Supervisor.Remove(context.WithoutCancel(ctx), id); err != nil {
		return nil, err
	}
	if !r.last.is(id) {
		if err := r.o.Sessions.RemoveTemp(id); err != nil {
			r.log.Warn("agent destroyed, its file is still there", zap.String("agent", id), zap.Error(err))
		}
	}
	return r.Created(id), nil
}

// Created lists the agents that run and were created for another.
func (r *Registry) Created(id string) (ids []string) {
	for _, info := range r.o.Supervisor.Agents() {
		if info.Labels.Parent == id {
			ids = append(ids, info.ID)
		}
	}
	return ids
}
