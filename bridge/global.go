package bridge

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (s *Server) createAgent(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (api.CreateAgentResult, error) {
	if p.AgentID == nil {
		id := s.freeID()
		p.AgentID = &id
		c.Note("agent_id", id)
	}
	id := *p.AgentID
	if err := s.checkName(id); err != nil {
		return api.CreateAgentResult{}, err
	}
	if c.By.Agent != nil {
		if p.ParentAgentID != nil && *p.ParentAgentID != c.By.Agent.AgentID {
			return api.CreateAgentResult{}, api.Invalid("parent_agent_id", "%s creates agents for itself alone", c.By.Agent.AgentID)
		}
		if p.Env != nil {
			return api.CreateAgentResult{}, api.Invalid("env", "%s cannot set it: that is for people", c.By.Agent.AgentID)
		}
		p.ParentAgentID = &c.By.Agent.AgentID
	}
	given := p
	parent, err := s.inherit(ctx, &p)
	if err != nil {
		return api.CreateAgentResult{}, err
	}
	a, from, err := s.create(ctx, c, p)
	if err != nil {
		return api.CreateAgentResult{}, err
	}
	if from != isNew {
		c.Note("existed", string(from))
	}
	switch {
	case from == wasActive:
		if err = s.checkSame(ctx, a, given); err == nil && c.By.Agent != nil && p.InitialMessage != nil {
			err = s.checkPeer(ctx, c.By.Agent.AgentID, a)
		}
	default:
		err = s.keep(ctx, c, a, parent)
	}
	if err != nil {
		return api.CreateAgentResult{}, err
	}
	result := api.CreateAgentResult{AgentID: id, URL: "/agent/" + id, Restored: from == wasSaved, Existing: from == wasActive}
	if from != isNew {
		state, err := ask(ctx, s, a, protocol.GetState{})
		if err != nil {
			return api.CreateAgentResult{}, err
		}
		result.MessageCount = &state.MessageCount
		result.NarrowedFrom = a.Info().Labels[labelNarrowed]
	}
	if p.InitialMessage != nil {
		s.used(a)
		if err := s.sendFirst(ctx, c, a, p, &result); err != nil {
			return api.CreateAgentResult{}, err
		}
	}
	return result, nil
}

// keep takes a new agent back if the one that it was made for has gone
// meanwhile, or does not want it any more.
func (s *Server) keep(ctx context.Context, c *rpc.Call, a, parent *supervisor.Agent) error {
	var gone error
	if parent != nil {
		if now, err := s.o.Supervisor.Agent(parent.ID()); err != nil || now != parent {
			gone = api.Invalid("parent_agent_id", "agent %s was destroyed meanwhile", parent.ID())
		}
	}
	if c.By.Agent != nil && ctx.Err() != nil {
		gone = context.Cause(ctx)
	}
	if gone == nil {
		return nil
	}
	return errors.Join(gone, s.destroyFor(ctx, c, a.ID()))
}

// createFor creates an agent that nobody asked for by name, and audits that.
func (s *Server) createFor(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (a *supervisor.Agent, err error) {
	err = s.router.OnBehalf(c, api.CreateAgent.Name, p, func() error {
		a, _, err = s.create(ctx, c, p)
		return err
	})
	return a, err
}

// destroyFor destroys an agent that nobody asked for by name, and audits that; it
// is no error if there is none.
func (s *Server) destroyFor(ctx context.Context, c *rpc.Call, id string) error {
	return s.router.OnBehalf(c, api.DestroyAgent.Name, api.AgentIDParams{AgentID: id}, func() error {
		if err := s.destroy(ctx, c, id); !errors.Is(err, supervisor.ErrNotFound) {
			return err
		}
		return nil
	})
}

// create starts a new agent, continues a saved one, or finds one that runs where
// that is asked for.
func (s *Server) create(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (*supervisor.Agent, origin, error) {
	id := *p.AgentID
	defer s.locks.lock(id)()
	a, err := s.useExisting(c, p)
	if !errors.Is(err, supervisor.ErrNotFound) {
		return a, wasActive, err
	}
	if c.By.Agent != nil && s.last.is(id) {
		return nil, isNew, api.Denied("%s is what a person used last: choose another name", id)
	}
	// What an earlier temporary agent of that name left is not this one's.
	if err := s.o.Sessions.RemoveTemp(id); err != nil {
		return nil, isNew, err
	}
	from := isNew
	if s.o.Sessions.Exists(id) {
		from = wasSaved
	}
	if from == wasSaved && c.By.Agent != nil {
		return nil, isNew, api.Denied("there is a saved agent %s: to go on with it is for people; choose another name, or send to it", id)
	}
	a, err = s.start(ctx, p)
	return a, from, err
}

// sendFirst sends the initial message. That it comes to nothing is part of the
// result: the agent exists all the same. The error is that of ctx.
func (s *Server) sendFirst(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.CreateAgentParams, result *api.CreateAgentResult) error {
	requestID := uuid.NewString()
	result.InitialRequestID = requestID
	first := api.SendParams{Content: *p.InitialMessage, RequestID: &requestID}
	var answer api.SendResult
	var err error
	switch {
	case !protocol.Value(p.WaitForInitialResponse):
		_, _, err = s.prompt(ctx, a, first)
	case c.By.Agent != nil:
		answer, err = s.delegate(ctx, a, *c.By.Agent, first, nil)
	default:
		answer, err = s.sendTo(ctx, c, a, first, nil)
	}
	switch {
	case err == nil && answer.RequestID == "": // nobody waits for more
		return nil
	case err == nil:
		result.InitialResponse = &answer
		return nil
	case ctx.Err() != nil:
		return err
	}
	refused := rpc.ToError(err)
	result.InitialError = &api.InitialError{Code: int(refused.Err.Code), Message: refused.Err.Message}
	return nil
}

func (s *Server) destroyAgent(ctx context.Context, c *rpc.Call, p api.AgentIDParams) (api.DestroyAgentResult, error) {
	result := api.DestroyAgentResult{AgentID: p.AgentID}
	if !api.ValidAgentID(p.AgentID) {
		return result, nil
	}
	err := s.destroy(ctx, c, p.AgentID)
	result.Success = err == nil
	if errors.Is(err, supervisor.ErrNotFound) {
		err = nil
	}
	return result, err
}

func (s *Server) listAgents(_ context.Context, c *rpc.Call, _ api.None) (api.ListAgentsResult, error) {
	infos := s.o.Supervisor.Agents()
	children := map[string]int{}
	for _, info := range infos {
		if parent := info.Labels[labelParent]; parent != "" {
			children[parent]++
		}
	}
	usage := s.o.Supervisor.Usage().Agents
	agents := make([]api.AgentInfo, len(infos))
	for i, info := range infos {
		agents[i] = describe(info, children[info.ID])
		if c.By.Agent == nil {
			agents[i].Pending, agents[i].UnsavedPermissions = info.Asked, info.Narrowed
		}
		if took := usage[info.ID].MemoryBytes; took > 0 && info.PID > 0 {
			agents[i].MemoryBytes = &took
		}
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
		Provenance:     cmp.Or(info.Labels[labelProvenance], api.ProvenanceUser),
		ChildCount:     children,
		Queued:         info.Queued,

		PendingPermissions: len(info.Asked),
		RequestID:          known(info.Running),
		LastRestartReason:  known(string(info.LastRestart)),
		LastError:          known(info.LastError),
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

func (s *Server) shutdownServer(context.Context, *rpc.Call, api.None) (api.SuccessResult, error) {
	s.Drain()
	if s.o.Shutdown != nil {
		s.o.Shutdown()
	}
	return api.SuccessResult{Success: true}, nil
}
