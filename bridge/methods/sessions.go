package methods

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (m *sessionMethods) list(ctx context.Context, _ *rpc.Call, p api.ListSessionsParams) (api.ListSessionsResult, error) {
	limit := uint64(api.DefaultSessions)
	if p.Limit != nil {
		limit = *p.Limit
	}
	agents.Arrive(ctx, m.agents)
	page, total, err := m.page(protocol.Value(p.Offset), limit, protocol.Value(p.IncludeTemp))
	if err != nil {
		return api.ListSessionsResult{}, err
	}
	result := api.ListSessionsResult{
		Total: total, Offset: protocol.Value(p.Offset), Limit: limit, Sessions: make([]api.SavedSession, len(page)),
	}
	for i, entry := range page {
		result.Sessions[i] = m.describeSession(entry)
	}
	last := m.agents.Last()
	if m.agents.Sessions().There(last) { // it may be long, and is written to: it is not read
		result.LastSession = &last
	}
	return result, nil
}

// page is a page of the sessions, without those in this home whose name another machine of the cluster has: calls go to that one's.
func (m *sessionMethods) page(offset, limit uint64, temp bool) (page []sessions.Entry, total uint64, err error) {
	for hidden := uint64(0); ; {
		page, total, err = m.agents.Sessions().List(offset, limit+hidden, temp)
		if err != nil {
			return nil, 0, err
		}
		found := uint64(len(page))
		page = slices.DeleteFunc(page, func(e sessions.Entry) bool { return agents.Elsewhere(m.agents, e.Name) != "" })
		if gone := found - uint64(len(page)); gone == hidden || found < limit+hidden {
			return page, total - gone, nil
		} else {
			hidden = gone
		}
	}
}

func (m *sessionMethods) describeSession(e sessions.Entry) api.SavedSession {
	out := api.SavedSession{
		Name: e.Name, UpdatedAt: unixSeconds(e.UpdatedAt), IsTemp: e.Temp, Provenance: api.ProvenanceUser,
	}
	var unsaved *protocol.Permissions
	if a, err := m.agents.Supervisor().Agent(e.Name); err == nil {
		out.Active, unsaved = true, a.Info().Narrowed
	}
	if e.Damaged != nil {
		out.Damaged = e.Damaged.Error()
		if named, ok := errors.AsType[*sessions.Error](e.Damaged); ok {
			out.Damaged = named.Err.Error()
		}
		return out
	}
	out.MessageCount = e.Messages
	if !e.Header.CreatedAt.IsZero() { // its beginning was not written yet
		out.CreatedAt = new(unixSeconds(e.Header.CreatedAt))
	}
	out.Provenance = cmp.Or(protocol.Value(e.Settings.ParentAgentID), api.ProvenanceUser)
	out.Model, out.Cwd, out.LostCwd = e.Settings.Model, e.Settings.Cwd, e.Settings.LostCwd
	if mode := e.Settings.CwdLost; protocol.Value(mode) != protocol.CwdLostWait {
		out.CwdLost = mode
	}
	if e.Settings.Program != nil {
		out.Kind = &e.Settings.Program.Kind
	}
	if held := cmp.Or(unsaved, e.Settings.Permissions); held != nil {
		out.PermissionLevel = &held.Preset
	}
	return out
}

// unixSeconds is a time as a number of seconds since 1970, to the millisecond.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func (m *sessionMethods) load(ctx context.Context, _ *rpc.Call, p api.LoadSessionParams) (api.LoadSessionResult, error) {
	name := protocol.Value(p.SessionName)
	if protocol.Value(p.Last) {
		if name = m.agents.Last(); name == "" {
			return api.LoadSessionResult{}, &sessions.Error{Name: "the last one", Err: sessions.ErrNotFound}
		}
	}
	id := cmp.Or(protocol.Value(p.AgentID), name)
	if id != name {
		if err := m.agents.CheckName(id); err != nil {
			return api.LoadSessionResult{}, err
		}
	}
	a, restored, err := m.agents.Load(ctx, name, id, p)
	if err != nil {
		return api.LoadSessionResult{}, err
	}
	state, err := agents.Ask(ctx, m.agents, a, protocol.GetState{})
	if err != nil {
		return api.LoadSessionResult{}, err
	}
	if a.Info().Labels.Provenance == "" {
		m.agents.SetLast(id)
	}
	return api.LoadSessionResult{
		Restored: restored, AgentID: id, MessageCount: state.MessageCount,
		NarrowedFrom: a.Info().Labels.NarrowedFrom,
	}, nil
}

func (m *sessionMethods) fork(ctx context.Context, c *rpc.Call, p api.ForkParams) (api.ForkResult, error) {
	if err := m.agents.CheckName(p.NewAgentID); err != nil {
		return api.ForkResult{}, err
	}
	a, err := agents.Fork(ctx, m.agents, p.AgentID, p.NewAgentID, p.Message)
	if err != nil {
		return api.ForkResult{}, err
	}
	c.Incarnation = a.Info().Incarnation
	state, err := agents.Ask(ctx, m.agents, a, protocol.GetState{})
	return api.ForkResult{
		AgentID: p.NewAgentID, URL: "/agent/" + p.NewAgentID, MessageCount: state.MessageCount, NarrowedFrom: a.Info().Labels.NarrowedFrom,
	}, err
}

// saveSession gives a temporary agent a name by which it is saved. A named one
// is saved as it works; under another name, that is a copy.
func (m *sessionMethods) save(ctx context.Context, _ *rpc.Call, p api.SaveSessionParams) (api.SaveSessionResult, error) {
	name := cmp.Or(protocol.Value(p.SessionName), p.AgentID)
	result := api.SaveSessionResult{Saved: true, SessionName: name, AgentID: p.AgentID}
	_, err := m.agents.Supervisor().Agent(p.AgentID)
	if err != nil && !m.agents.Sessions().Exists(p.AgentID) {
		return api.SaveSessionResult{}, rpc.AgentNotFound(p.AgentID, supervisor.ErrNotFound)
	}
	switch {
	case api.IsTemp(p.AgentID):
		result.AgentID = name
		err = m.agents.Rename(ctx, p.AgentID, name)
	case name != p.AgentID:
		err = m.agents.Clone(ctx, p.AgentID, name)
	default:
		if err = m.agents.SaveNarrowed(ctx, name); err == nil {
			_, err = m.agents.Sessions().Summary(name)
		}
	}
	return result, err
}

func (m *sessionMethods) clone(ctx context.Context, _ *rpc.Call, p api.CloneSessionParams) (api.CloneSessionResult, error) {
	result := api.CloneSessionResult{Cloned: true, SrcSession: p.SrcSession, DestSession: p.DestSession}
	return result, m.agents.Clone(ctx, p.SrcSession, p.DestSession)
}

func (m *sessionMethods) delete(ctx context.Context, _ *rpc.Call, p api.DeleteSessionParams) (api.DeleteSessionResult, error) {
	deleted, err := m.agents.DeleteSession(ctx, p.SessionName)
	return api.DeleteSessionResult{Deleted: deleted, SessionName: p.SessionName}, err
}

func (m *sessionMethods) rename(ctx context.Context, _ *rpc.Call, p api.RenameSessionParams) (api.RenameSessionResult, error) {
	return api.RenameSessionResult{Renamed: true, OldName: p.OldName, NewName: p.NewName}, m.agents.Rename(ctx, p.OldName, p.NewName)
}
