package methods

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

func (m *agentMethods) create(ctx context.Context, c *rpc.Call, p api.CreateAgentParams) (api.CreateAgentResult, error) {
	a, from, err := m.agents.Create(ctx, c, p)
	if err == nil && (from == agents.WasRunning || p.Kind != nil) && c.By.Agent != nil && p.InitialMessage != nil {
		err = m.agents.Access().CheckPeer(ctx, c.By, a)
	}
	if err != nil {
		return api.CreateAgentResult{}, err
	}
	id := a.ID()
	result := api.CreateAgentResult{AgentID: id, URL: "/agent/" + id, Restored: from == agents.WasSaved, Existing: from == agents.WasRunning}
	if from != agents.IsNew {
		state, err := agents.Ask(ctx, m.agents, a, protocol.GetState{})
		if err != nil {
			return api.CreateAgentResult{}, err
		}
		result.MessageCount = &state.MessageCount
		result.NarrowedFrom = a.Info().Labels.NarrowedFrom
	}
	if p.InitialMessage != nil {
		m.agents.NoteUsed(a)
		if err := m.sendFirst(ctx, c, a, p, &result); err != nil {
			return api.CreateAgentResult{}, err
		}
	}
	return result, nil
}

// sendFirst sends the initial message. That it comes to nothing is part of the
// result: the agent exists all the same. The error is that of ctx.
func (m *agentMethods) sendFirst(ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.CreateAgentParams, result *api.CreateAgentResult) error {
	requestID := uuid.NewString()
	result.InitialRequestID = requestID
	first := api.SendParams{Content: *p.InitialMessage, RequestID: &requestID}
	var answer api.SendResult
	var err error
	switch {
	case !protocol.Value(p.WaitForInitialResponse):
		_, err = prompt(ctx, c, a, first, true)
	case c.By.Agent != nil:
		answer, err = m.turns.delegate(ctx, c, a, first, nil)
	default:
		answer, err = m.turns.sendTo(ctx, c, a, first, nil)
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

func (m *agentMethods) destroy(ctx context.Context, c *rpc.Call, p api.AgentIDParams) (api.DestroyAgentResult, error) {
	result := api.DestroyAgentResult{AgentID: p.AgentID}
	if !api.ValidAgentID(p.AgentID) {
		return result, nil
	}
	err := m.agents.Destroy(ctx, c, p.AgentID)
	result.Success = err == nil
	if errors.Is(err, supervisor.ErrNotFound) {
		err = nil
	}
	return result, err
}

func (m *agentMethods) list(_ context.Context, c *rpc.Call, _ api.None) (api.ListAgentsResult, error) {
	infos := m.agents.Supervisor().Agents()
	children := map[string]int{}
	for _, info := range infos {
		if parent := info.Labels.Parent; parent != "" {
			children[parent]++
		}
	}
	usage := m.agents.Supervisor().Usage().Agents
	list := make([]api.AgentInfo, len(infos))
	for i, info := range infos {
		list[i] = agents.Describe(info, children[info.ID])
		if c.By.Agent == nil {
			list[i].Waiting, list[i].Pending, list[i].UnsavedPermissions = info.Waiting, info.Asked, info.Narrowed
		}
		if took := usage[info.ID]; took.MemoryBytes > 0 && info.PID > 0 {
			list[i].MemoryBytes, list[i].CPUSeconds = &took.MemoryBytes, new(took.CPU.Seconds())
		}
		if tokens, cost, err := agents.Used(m.agents, info.ID); err == nil {
			list[i].TokensUsed, list[i].CostUsed = &tokens, &cost
		}
	}
	return api.ListAgentsResult{Agents: list}, nil
}

func (m *agentMethods) kinds(context.Context, *rpc.Call, api.None) (api.ListKindsResult, error) {
	return api.ListKindsResult{Kinds: agents.KindList(m.agents)}, nil
}

func (m *agentMethods) listNodes(context.Context, *rpc.Call, api.None) (api.ListNodesResult, error) {
	return m.nodes.Nodes(), nil
}

func (m *agentMethods) shutdownServer(context.Context, *rpc.Call, api.None) (api.SuccessResult, error) {
	m.requests.Close()
	return api.SuccessResult{Success: true}, nil
}

func (m *agentMethods) summaries(_ context.Context, _ *rpc.Call, p api.AgentSummariesParams) (api.AgentSummariesResult, error) {
	infos := m.agents.Supervisor().Agents()
	result := api.AgentSummariesResult{Agents: make([]api.AgentSummary, len(infos))}
	for i, info := range infos {
		out := api.AgentSummary{AgentID: info.ID}
		u := info.Update
		if u == nil {
			u = &protocol.SessionUpdate{}
		}
		out.Cwd, out.PermissionLevel, out.Model = agents.Cwd(info), agents.Known(u.Preset), agents.Known(u.Model)
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
