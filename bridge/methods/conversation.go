package methods

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

func stateOf(ctx context.Context, r *agents.Registry, c *rpc.Call) (protocol.State, error) {
	return askAgent(ctx, r, c, protocol.GetState{})
}

// askAgent is agents.AskFor for the agent of a call, which is started if need be.
func askAgent[R any](ctx context.Context, r *agents.Registry, c *rpc.Call, command protocol.Request[R]) (R, error) {
	a, err := r.Resolve(ctx, c.Agent)
	if err != nil {
		var none R
		return none, err
	}
	c.Incarnation = a.Info().Incarnation
	return agents.AskFor(ctx, r, c, a, command, 0)
}

func (m *conversationMethods) tokens(ctx context.Context, c *rpc.Call, _ api.None) (api.GetTokensResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.GetTokensResult{}, err
	}
	return api.GetTokensResult(state.Tokens), nil
}

func (m *conversationMethods) context(ctx context.Context, c *rpc.Call, _ api.None) (api.GetContextResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.GetContextResult{}, err
	}
	return api.GetContextResult{
		MessageCount: state.MessageCount, SystemPrompt: state.SystemPrompt != "", SessionID: state.SessionID,
		Model: state.Model, Provider: state.Provider, Cwd: state.Cwd, PermissionLevel: state.Preset,
		HaltedAtIterationLimit: state.HaltedAtIterationLimit, Usage: state.Usage, Cost: state.Cost,
	}, nil
}

// messages passes on a page as the child wrote it.
func (m *conversationMethods) messages(ctx context.Context, c *rpc.Call, p api.GetMessagesParams) (rpc.Raw[api.GetMessagesResult], error) {
	page, err := askAgent(ctx, m.agents, c, protocol.GetMessages{
		Offset: p.Offset, Limit: p.Limit, IncludeCompacted: protocol.Value(p.IncludeCompacted),
	})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(page)
	return raw, err
}

func (m *conversationMethods) model(ctx context.Context, c *rpc.Call, _ api.None) (api.GetModelResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.GetModelResult{}, err
	}
	return api.GetModelResult{Model: state.Model, Provider: state.Provider, Reasoning: state.Reasoning}, nil
}

func (m *conversationMethods) setModel(ctx context.Context, c *rpc.Call, p api.SetModelParams) (api.SetModelResult, error) {
	if p.Model == "" {
		return api.SetModelResult{}, api.Invalid("model", "is empty")
	}
	set, err := askAgent(ctx, m.agents, c, protocol.SetModel{Model: p.Model})
	if err != nil {
		return api.SetModelResult{}, refusedChange(c, "model", protocol.SetModel{}, err)
	}
	return api.SetModelResult{Updated: true, Model: cmp.Or(set.Model, p.Model)}, nil
}

// compactPatience is how long a summary may be in the making.
const compactPatience = 10 * time.Minute

func (m *conversationMethods) compact(ctx context.Context, c *rpc.Call, p api.CompactParams) (api.CompactResult, error) {
	a, err := m.agents.Resolve(ctx, c.Agent)
	if err != nil {
		return api.CompactResult{}, err
	}
	c.Incarnation = a.Info().Incarnation
	done, err := agents.AskFor(ctx, m.agents, c, a, protocol.Compact{Force: protocol.Value(p.Force)}, compactPatience)
	return api.CompactResult{
		Compacted: done.Compacted, Reason: done.Reason, Summary: done.Summary, By: done.By,
		TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
	}, err
}

func (m *conversationMethods) newSession(ctx context.Context, c *rpc.Call, _ api.None) (api.NewSessionResult, error) {
	begun, err := askAgent(ctx, m.agents, c, protocol.NewSession{})
	return api.NewSessionResult(begun), err
}

// undo leaves files whose change the caller could not allow if the agent asked.
func (m *conversationMethods) undo(ctx context.Context, c *rpc.Call, p api.UndoParams) (protocol.UndoAnswer, error) {
	files := protocol.Value(p.Files)
	return askAgent(ctx, m.agents, c, protocol.Undo{Files: files, Unasked: files && c.Bound() == protocol.WithinHeld})
}

func (m *conversationMethods) listModels(ctx context.Context, c *rpc.Call, _ api.None) (api.ListModelsResult, error) {
	models, err := askAgent(ctx, m.agents, c, protocol.GetAvailableModels{})
	return api.ListModelsResult(models), err
}
