package methods

import (
	"context"
	"errors"
	"strings"
	"sync"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/notes"
	"nexus.internal/supervisor"
)

// maxTold is how many agents get a change at once.
const maxTold = 16

// updateContext changes what one agent's model gets beside the conversation, or all
// that the server runs. What one of all of them says against it is part of the
// result.
func (m *settingsMethods) updateContext(ctx context.Context, c *rpc.Call, p api.UpdateContextParams) (api.UpdateContextResult, error) {
	id := c.Agent
	if p.AgentID != nil {
		if id != "" && id != *p.AgentID {
			return api.UpdateContextResult{}, api.Invalid("agent_id", "is not the agent of the path, %s", id)
		}
		id = *p.AgentID
	}
	command := protocol.UpdateContext{Action: p.Action, ContextType: p.ContextType, Data: p.Data}
	if id != "" {
		one := &rpc.Call{Request: c.Request, Agent: id, By: c.By}
		_, err := set(ctx, m.agents, one, "data", command)
		c.Incarnation = one.Incarnation
		if err != nil {
			return api.UpdateContextResult{}, err
		}
		return api.UpdateContextResult{Updated: true, Agents: []api.ContextUpdate{{AgentID: id, Updated: true}}}, nil
	}
	kept, err := m.keep(p)
	if err != nil {
		return api.UpdateContextResult{}, err
	}
	infos := m.agents.Supervisor().Agents() // who is not among them yet begins with what is kept
	result := api.UpdateContextResult{Updated: kept || len(infos) > 0, Kept: kept, Agents: make([]api.ContextUpdate, len(infos))}
	var told sync.WaitGroup
	room := make(chan struct{}, maxTold)
	for i, info := range infos {
		room <- struct{}{}
		told.Go(func() {
			defer func() { <-room }()
			result.Agents[i] = m.tell(ctx, info.ID, command)
		})
	}
	told.Wait()
	for _, agent := range result.Agents {
		result.Updated = result.Updated && agent.Updated
	}
	return result, ctx.Err()
}

// keep changes what agents that are made later are told.
func (m *settingsMethods) keep(p api.UpdateContextParams) (kept bool, err error) {
	note, err := notes.New(p.Action, p.ContextType, p.Data)
	if err != nil {
		return false, api.Invalid("data", "%v", err)
	}
	_, kept, err = m.notes.Change(note, p.Action)
	if e, ok := errors.AsType[*notes.BoundError](err); ok {
		return false, api.Invalid("data", "%v", e)
	}
	return kept, err
}

// getNotes reads what one agent was told, or what agents that are made later are.
func (m *settingsMethods) getNotes(ctx context.Context, c *rpc.Call, _ api.None) (protocol.Notes, error) {
	if c.Agent != "" {
		return askAgent(ctx, m.agents, c, protocol.GetNotes{})
	}
	all, err := m.notes.Read()
	return notes.List(all), err
}

// tell gives one of many agents the command.
func (m *settingsMethods) tell(ctx context.Context, id string, command protocol.UpdateContext) api.ContextUpdate {
	a, err := m.agents.Supervisor().Agent(id)
	if err == nil {
		_, err = agents.Ask(ctx, m.agents, a, command)
	}
	update := api.ContextUpdate{AgentID: id, Updated: err == nil}
	if refused, ok := errors.AsType[*supervisor.ChildError](err); ok {
		update.Error = strings.TrimPrefix(refused.Message, command.Name()+": ")
	} else if err != nil {
		r := rpc.ToError(err)
		update.Error = r.Err.Message
		if !r.Internal {
			update.Error = jsonrpc.Reason(update.Error, r.Err.Data.Details)
		}
	}
	return update
}
