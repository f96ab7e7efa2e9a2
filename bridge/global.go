package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (s *Server) createAgent(ctx context.Context, _ *call, p api.CreateAgentParams) (any, error) {
	if p.AgentID == nil {
		id := s.freeID()
		p.AgentID = &id
	}
	id := *p.AgentID
	if err := s.inherit(&p); err != nil {
		return nil, err
	}
	a, saved, err := s.create(ctx, p)
	if err != nil {
		return nil, err
	}
	result := api.CreateAgentResult{AgentID: id, URL: "/agent/" + id}
	if saved {
		body, err := s.ask(ctx, a, protocol.GetState{})
		if err != nil {
			return nil, err
		}
		count := gjson.GetBytes(body, "message_count").Uint()
		result.Restored, result.MessageCount = true, &count
	}
	if p.InitialMessage != nil {
		if err := s.sendFirst(ctx, a, p, &result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// create starts a new agent and reports whether it continues a saved session.
func (s *Server) create(ctx context.Context, p api.CreateAgentParams) (a *supervisor.Agent, saved bool, err error) {
	id := *p.AgentID
	defer s.locks.lock(id)()
	if _, err := s.o.Supervisor.Agent(id); err == nil {
		return nil, false, &agentError{id: id, err: supervisor.ErrExists}
	}
	// What an earlier temporary agent of that name left is not this one's.
	if err := s.o.Sessions.RemoveTemp(id); err != nil {
		return nil, false, err
	}
	saved = s.o.Sessions.Exists(id)
	a, err = s.start(ctx, p)
	return a, saved, err
}

// sendFirst sends the initial message. That it comes to nothing is part of the
// result: the agent exists all the same. The error is that of ctx.
func (s *Server) sendFirst(ctx context.Context, a *supervisor.Agent, p api.CreateAgentParams, result *api.CreateAgentResult) error {
	requestID := uuid.NewString()
	result.InitialRequestID = requestID
	turn, err := s.prompt(ctx, a, api.SendParams{Content: *p.InitialMessage, RequestID: &requestID})
	if err == nil {
		if !api.Value(p.WaitForInitialResponse) {
			return nil
		}
		var outcome supervisor.Result
		outcome, err = turn.Wait(ctx)
		if ctx.Err() != nil && err != nil {
			return err
		}
		var answer api.SendResult
		if answer, err = sendResult(outcome, err); err == nil {
			result.InitialResponse = &answer
			return nil
		}
	}
	refused := explain(err)
	result.InitialError = &api.InitialError{Code: int(refused.err.Code), Message: refused.err.Message}
	return nil
}

func (s *Server) destroyAgent(ctx context.Context, _ *call, p api.AgentIDParams) (any, error) {
	result := api.DestroyAgentResult{AgentID: p.AgentID}
	if !api.ValidAgentID(p.AgentID) {
		return result, nil
	}
	defer s.locks.lock(p.AgentID)()
	err := s.o.Supervisor.Remove(context.WithoutCancel(ctx), p.AgentID)
	if errors.Is(err, supervisor.ErrNotFound) {
		return result, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.o.Sessions.RemoveTemp(p.AgentID); err != nil {
		s.log.Warn("agent destroyed, its file is still there", zap.String("agent", p.AgentID), zap.Error(err))
	}
	result.Success = true
	return result, nil
}

func (s *Server) listAgents(context.Context, *call, api.None) (any, error) {
	infos := s.o.Supervisor.Agents()
	children := map[string]int{}
	for _, info := range infos {
		if parent := info.Labels[labelParent]; parent != "" {
			children[parent]++
		}
	}
	agents := make([]api.AgentInfo, len(infos))
	for i, info := range infos {
		agents[i] = describe(info, children[info.ID])
	}
	return api.ListAgentsResult{Agents: agents}, nil
}

func describe(info supervisor.Info, children int) api.AgentInfo {
	out := api.AgentInfo{
		AgentID:        info.ID,
		CreatedAt:      info.CreatedAt.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
		ShouldShutdown: info.ShouldShutdown,
		State:          info.State.String(),
		Incarnation:    info.Incarnation,
		Restarts:       info.Restarts,
		IsTemp:         api.IsTemp(info.ID),
		ParentAgentID:  known(info.Labels[labelParent]),
		ChildCount:     children,
		Queued:         info.Queued,
		RequestID:      known(info.Running),
		LastError:      known(info.LastError),
	}
	if info.PID > 0 {
		out.PID = &info.PID
	}
	if u := info.Update; u != nil {
		out.MessageCount = u.MessageCount
		out.Model, out.PermissionLevel, out.Cwd = known(u.Model), known(u.Preset), known(u.Cwd)
		out.LastActionAt = u.LastActionAt
	}
	return out
}

// known is a pointer to s, nil if there is nothing in it.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *Server) shutdownServer(context.Context, *call, api.None) (any, error) {
	s.Drain()
	if s.o.Shutdown != nil {
		s.o.Shutdown()
	}
	return api.SuccessResult{Success: true}, nil
}
