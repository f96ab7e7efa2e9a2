package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (s *Server) listSessions(_ context.Context, _ *rpc.Call, p api.ListSessionsParams) (api.ListSessionsResult, error) {
	limit := uint64(api.DefaultSessions)
	if p.Limit != nil {
		limit = *p.Limit
	}
	page, total, err := s.o.Sessions.List(protocol.Value(p.Offset), limit, protocol.Value(p.IncludeTemp))
	if err != nil {
		return api.ListSessionsResult{}, err
	}
	result := api.ListSessionsResult{
		Total: total, Offset: protocol.Value(p.Offset), Limit: limit, Sessions: make([]api.SavedSession, len(page)),
	}
	for i, entry := range page {
		result.Sessions[i] = s.describeSession(entry)
	}
	s.last.mu.Lock()
	last := s.last.id
	s.last.mu.Unlock()
	if _, err := s.o.Sessions.Summary(last); !errors.Is(err, sessions.ErrNotFound) {
		result.LastSession = &last
	}
	return result, nil
}

func (s *Server) describeSession(e sessions.Entry) api.SavedSession {
	out := api.SavedSession{
		Name: e.Name, UpdatedAt: unixSeconds(e.UpdatedAt), IsTemp: e.Temp, Provenance: api.ProvenanceUser,
	}
	var unsaved *protocol.Permissions
	if a, err := s.o.Supervisor.Agent(e.Name); err == nil {
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
	out.Model, out.Cwd = e.Settings.Model, e.Settings.Cwd
	if held := cmp.Or(unsaved, e.Settings.Permissions); held != nil {
		out.PermissionLevel = &held.Preset
	}
	return out
}

// unixSeconds is a time as a number of seconds since 1970, to the millisecond.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func (s *Server) loadSession(ctx context.Context, _ *rpc.Call, p api.LoadSessionParams) (api.LoadSessionResult, error) {
	name := protocol.Value(p.SessionName)
	if protocol.Value(p.Last) {
		s.last.mu.Lock()
		name = s.last.id
		s.last.mu.Unlock()
		if name == "" {
			return api.LoadSessionResult{}, &sessions.Error{Name: "the last one", Err: sessions.ErrNotFound}
		}
	}
	id := cmp.Or(protocol.Value(p.AgentID), name)
	if id != name {
		if err := s.checkName(id); err != nil {
			return api.LoadSessionResult{}, err
		}
	}
	a, restored, err := s.load(ctx, name, id, p)
	if err != nil {
		return api.LoadSessionResult{}, err
	}
	state, err := ask(ctx, s, a, protocol.GetState{})
	if err != nil {
		return api.LoadSessionResult{}, err
	}
	if a.Info().Labels[labelProvenance] == "" {
		s.setLast(id)
	}
	return api.LoadSessionResult{
		Restored: restored, AgentID: id, MessageCount: state.MessageCount,
		NarrowedFrom: a.Info().Labels[labelNarrowed],
	}, nil
}

// load starts the agent id from the session name; under another name, from a
// copy of it. The last session's agent may run already.
func (s *Server) load(ctx context.Context, name, id string, p api.LoadSessionParams) (a *supervisor.Agent, restored bool, err error) {
	defer s.locks.lock(id)()
	if a, err := s.o.Supervisor.Agent(id); err == nil {
		if protocol.Value(p.Last) && id == name {
			return a, false, nil
		}
		return nil, false, rpc.AgentExists(id)
	}
	if _, err := s.o.Sessions.Summary(name); err != nil {
		return nil, false, err
	}
	if id != name {
		if err := s.saveNarrowed(ctx, name); err != nil {
			return nil, false, err
		}
		s.moved(id)
		if err := s.o.Sessions.Clone(name, id); err != nil {
			return nil, false, err
		}
	}
	a, err = s.start(ctx, api.CreateAgentParams{AgentID: &id, Preset: p.Preset, Model: p.Model, Restored: true})
	if err != nil && id != name {
		if gone, ok := errors.AsType[*GoneError](err); ok { // of the copy
			gone.Session = name
			err = gone.apiError()
		}
		err = errors.Join(err, s.o.Sessions.Delete(id)) // nobody asked for a copy alone
	}
	return a, err == nil, err
}

// saveSession gives a temporary agent a name by which it is saved. A named one
// is saved as it works; under another name, that is a copy.
func (s *Server) saveSession(ctx context.Context, _ *rpc.Call, p api.SaveSessionParams) (api.SaveSessionResult, error) {
	name := cmp.Or(protocol.Value(p.SessionName), p.AgentID)
	result := api.SaveSessionResult{Saved: true, SessionName: name, AgentID: p.AgentID}
	_, err := s.o.Supervisor.Agent(p.AgentID)
	if err != nil && !s.o.Sessions.Exists(p.AgentID) {
		return api.SaveSessionResult{}, rpc.AgentNotFound(p.AgentID, supervisor.ErrNotFound)
	}
	switch {
	case api.IsTemp(p.AgentID):
		result.AgentID = name
		err = s.rename(ctx, p.AgentID, name)
	case name != p.AgentID:
		err = s.clone(ctx, p.AgentID, name)
	default:
		if err = s.saveNarrowed(ctx, name); err == nil {
			_, err = s.o.Sessions.Summary(name)
		}
	}
	return result, err
}

func (s *Server) cloneSession(ctx context.Context, _ *rpc.Call, p api.CloneSessionParams) (api.CloneSessionResult, error) {
	result := api.CloneSessionResult{Cloned: true, SrcSession: p.SrcSession, DestSession: p.DestSession}
	return result, s.clone(ctx, p.SrcSession, p.DestSession)
}

func (s *Server) clone(ctx context.Context, src, dest string) error {
	if err := s.checkName(dest); err != nil {
		return err
	}
	defer s.locks.lock(dest)()
	if _, err := s.o.Supervisor.Agent(dest); err == nil {
		return &sessions.Error{Name: dest, Err: sessions.ErrExists}
	}
	if err := s.saveNarrowed(ctx, src); err != nil {
		return err
	}
	s.moved(dest)
	return s.o.Sessions.Clone(src, dest)
}

// saveNarrowed sees that the session of an agent that runs says of it no more than it
// may do, before it is copied: else the copy could do more.
func (s *Server) saveNarrowed(ctx context.Context, id string) error {
	a, err := s.o.Supervisor.Agent(id)
	if err != nil {
		return nil // what the session says is what there is
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CommandTimeout)
	defer cancel()
	return a.SaveNarrowed(ctx)
}

// deleteSession deletes a session, and with it an agent that has no process and
// is not to get one by itself.
func (s *Server) deleteSession(ctx context.Context, _ *rpc.Call, p api.DeleteSessionParams) (api.DeleteSessionResult, error) {
	result := api.DeleteSessionResult{SessionName: p.SessionName}
	defer s.locks.lock(p.SessionName)()
	if a, err := s.o.Supervisor.Agent(p.SessionName); err == nil {
		const way = "End it first, with destroy_agent."
		if state := a.Info().State; state != supervisor.Stopped && state != supervisor.Failed {
			return api.DeleteSessionResult{}, running(fmt.Sprintf("agent %s runs", p.SessionName), way)
		}
		if created := s.created(p.SessionName); len(created) > 0 {
			return api.DeleteSessionResult{}, running(fmt.Sprintf("agent %s has agents that it created: %d", p.SessionName, len(created)), way)
		}
		if err := s.o.Supervisor.Remove(context.WithoutCancel(ctx), p.SessionName); err != nil {
			return api.DeleteSessionResult{}, err
		}
	}
	s.moved(p.SessionName)
	err := s.o.Sessions.Delete(p.SessionName)
	if errors.Is(err, sessions.ErrNotFound) {
		return result, nil
	}
	result.Deleted = err == nil
	return result, err
}

func (s *Server) agentSummaries(_ context.Context, _ *rpc.Call, p api.AgentSummariesParams) (api.AgentSummariesResult, error) {
	infos := s.o.Supervisor.Agents()
	result := api.AgentSummariesResult{Agents: make([]api.AgentSummary, len(infos))}
	for i, info := range infos {
		out := api.AgentSummary{AgentID: info.ID}
		u := info.Update
		if u == nil {
			u = &protocol.SessionUpdate{}
		}
		out.Cwd, out.PermissionLevel, out.Model = known(u.Cwd), known(u.Preset), known(u.Model)
		if p.IncludeContext == nil || *p.IncludeContext {
			out.SummaryContext = &api.SummaryContext{
				MessageCount: u.MessageCount, HaltedAtIterationLimit: u.HaltedAtIterationLimit, LastActionAt: u.LastActionAt,
			}
		}
		if p.IncludeTokens == nil || *p.IncludeTokens {
			out.Tokens = &api.SummaryTokens{Total: u.TotalTokens, Budget: u.BudgetTokens}
		}
		result.Agents[i] = out
	}
	return result, nil
}
