package methods

import (
	"context"
	"errors"
	"strings"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// set gives an agent's process a command whose refusal is the fault of the
// parameter.
func set[R any](ctx context.Context, r *agents.Registry, c *rpc.Call, param string, command protocol.Request[R]) (R, error) {
	answer, err := askAgent(ctx, r, c, command)
	if err != nil {
		err = refusedChange(c, param, command, err)
	}
	return answer, err
}

func (m *settingsMethods) setCwd(ctx context.Context, c *rpc.Call, p api.SetCwdParams) (api.SetCwdResult, error) {
	now, err := set(ctx, m.agents, c, "cwd", protocol.SetCwd{Cwd: p.Cwd, Within: c.Bound()})
	return api.SetCwdResult(now), err
}

func (m *settingsMethods) getPermissions(ctx context.Context, c *rpc.Call, _ api.None) (api.GetPermissionsResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.GetPermissionsResult{}, err
	}
	held := state.Permissions
	held.Policy.Cwd = state.Cwd
	result := api.GetPermissionsResult{
		PermissionLevel: held.Level, Preset: state.Preset, DisabledTools: held.DisabledTools,
		Policy: held.Policy, SessionAllowances: held.Allowances, Allowances: append([]protocol.Allowance{}, held.Allowed...),
	}
	if a, err := m.agents.Supervisor().Agent(c.Agent); err == nil {
		result.Pending = a.PermissionRequests()
	}
	return result, nil
}

func (m *settingsMethods) revokeAllowances(ctx context.Context, c *rpc.Call, p api.RevokeAllowancesParams) (protocol.RevokeAllowancesAnswer, error) {
	if p.Allowances != nil && len(*p.Allowances) == 0 {
		return protocol.RevokeAllowancesAnswer{}, api.Invalid("allowances", "is empty: leave it out to take all back")
	}
	return set(ctx, m.agents, c, "allowances", protocol.RevokeAllowances{Allowances: protocol.Value(p.Allowances)})
}

func (m *settingsMethods) setPermissions(ctx context.Context, c *rpc.Call, p api.SetPermissionsParams) (api.SetPermissionsResult, error) {
	if p.Preset != nil {
		if _, err := m.agents.Basis(*p.Preset); err != nil {
			return api.SetPermissionsResult{}, err
		}
	}
	within := c.Bound()
	command, param := protocol.SetPermissions{Preset: p.Preset, Within: within}, "preset"
	if p.HasRules() || within != protocol.WithinCeiling {
		held := protocol.PermissionState{}
		if p.Preset == nil || within != protocol.WithinCeiling { // what is not given stays, so that it is not widened
			param = "permissions"
			state, err := stateOf(ctx, m.agents, c)
			if err != nil {
				return api.SetPermissionsResult{}, err
			}
			held = state.Permissions
		}
		asked := rulesOver(held, p)
		command = protocol.SetPermissions{Permissions: &asked, Within: within}
	}
	if _, err := set(ctx, m.agents, c, param, command); err != nil {
		return api.SetPermissionsResult{}, err
	}
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.SetPermissionsResult{}, err
	}
	return api.SetPermissionsResult{
		Updated: true, PermissionLevel: state.Permissions.Level, Preset: state.Preset,
	}, nil
}

// rulesOver puts what is asked for in the place of what an agent has, by its
// state; nothing if it was not asked.
func rulesOver(held protocol.PermissionState, p api.SetPermissionsParams) protocol.Permissions {
	rules := protocol.Permissions{
		Preset: held.Level, DisabledTools: held.DisabledTools, AllowedPaths: protocol.Value(held.Policy.AllowedPaths),
		WritePaths: protocol.Value(held.Policy.WritePaths), BlockedPaths: held.Policy.BlockedPaths, Network: protocol.Value(held.Policy.Network), Tools: held.Policy.Tools,
	}
	if p.Preset != nil {
		rules.Preset = *p.Preset
	}
	for _, one := range []struct {
		asked *[]string
		rule  *[]string
	}{
		{p.DisabledTools, &rules.DisabledTools},
		{p.AllowedPaths, &rules.AllowedPaths},
		{p.WritePaths, &rules.WritePaths},
		{p.BlockedPaths, &rules.BlockedPaths},
		{p.Network, &rules.Network},
	} {
		if one.asked != nil {
			*one.rule = append([]string{}, *one.asked...)
		}
	}
	if p.Tools != nil {
		rules.Tools = *p.Tools
	}
	return rules
}

func (m *settingsMethods) getLimits(_ context.Context, c *rpc.Call, _ api.None) (api.LimitsResult, error) {
	return m.agents.Limits(c.Agent)
}

func (m *settingsMethods) setLimits(_ context.Context, c *rpc.Call, p api.SetLimitsParams) (api.LimitsResult, error) {
	return m.agents.SetLimits(c.Agent, *p.Limits, func(limit string) error {
		if c.Bound() == protocol.WithinCeiling {
			return nil
		}
		return api.Denied("the key is good for agent %s and only narrows its limits: to raise %s wants the full key", c.Agent, limit)
	})
}

func (m *settingsMethods) respondPermission(ctx context.Context, c *rpc.Call, p api.RespondPermissionParams) (api.RespondPermissionResult, error) {
	// What does not run has asked for nothing, and need not be started.
	a, err := m.agents.Supervisor().Agent(c.Agent)
	if err != nil {
		return api.RespondPermissionResult{}, supervisor.ErrNoRequest
	}
	c.Incarnation = a.Info().Incarnation
	for _, asked := range a.PermissionRequests() {
		if asked.RequestID == p.RequestID {
			c.Note("tool", asked.ToolName)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.agents.CommandTimeout())
	defer cancel()
	err = a.RespondPermission(ctx, protocol.PermissionResponse{RequestID: p.RequestID, Decision: p.Decision, Reason: protocol.Value(p.Reason), OptionID: protocol.Value(p.OptionID)})
	if e, ok := errors.AsType[*supervisor.OptionError](err); ok {
		return api.RespondPermissionResult{}, api.Invalid("option_id", "%v", e)
	}
	if e, ok := errors.AsType[*supervisor.DecisionError](err); ok {
		offered := make([]string, len(e.Offered))
		for i, d := range e.Offered {
			offered[i] = string(d)
		}
		return api.RespondPermissionResult{}, api.Invalid("decision", "want one of %s, which the request offers, is %s", strings.Join(offered, ", "), e.Decision)
	}
	if err != nil {
		return api.RespondPermissionResult{}, agents.Destroyed(c.Agent, err)
	}
	return api.RespondPermissionResult{Responded: true, RequestID: p.RequestID, Decision: p.Decision}, nil
}

func (m *settingsMethods) getSystemPrompt(ctx context.Context, c *rpc.Call, _ api.None) (api.GetSystemPromptResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.GetSystemPromptResult{}, err
	}
	return api.GetSystemPromptResult{
		SystemPrompt: state.SystemPrompt, SystemPromptPath: state.SystemPromptPath, Layers: state.SystemPromptLayers,
		Environment: state.Environment,
		Truncated:   state.SystemPromptTruncated != nil && state.SystemPromptTruncated.Truncated,
	}, nil
}

func (m *settingsMethods) setSystemPrompt(ctx context.Context, c *rpc.Call, p api.SetSystemPromptParams) (api.UpdatedResult, error) {
	text, err := p.Text()
	if err != nil {
		return api.UpdatedResult{}, err
	}
	if _, err := set(ctx, m.agents, c, "system_prompt", protocol.SetSystemPrompt{SystemPrompt: text}); err != nil {
		return api.UpdatedResult{}, err
	}
	return api.UpdatedResult{Updated: true}, nil
}

func (m *settingsMethods) listTools(ctx context.Context, c *rpc.Call, _ api.None) (api.ListToolsResult, error) {
	list, err := askAgent(ctx, m.agents, c, protocol.ToolsList{})
	result := api.ListToolsResult{Tools: make([]api.Tool, len(list.Tools))}
	for i, tool := range list.Tools {
		result.Tools[i] = api.Tool(tool)
	}
	return result, err
}

func (m *settingsMethods) listJobs(ctx context.Context, c *rpc.Call, _ api.None) (protocol.JobList, error) {
	return askAgent(ctx, m.agents, c, protocol.ListJobs{})
}

func (m *settingsMethods) turnSettings(ctx context.Context, c *rpc.Call, _ api.None) (api.SettingsResult, error) {
	held, err := askAgent(ctx, m.agents, c, protocol.SetSettings{})
	return api.SettingsResult(held), err
}

func (m *settingsMethods) setTurnSettings(ctx context.Context, c *rpc.Call, p api.SetSettingsParams) (api.SettingsResult, error) {
	held, err := askAgent(ctx, m.agents, c, protocol.SetSettings{Settings: p.Settings.Turns()})
	if err != nil {
		return api.SettingsResult{}, refusedChange(c, "settings", protocol.SetSettings{}, err)
	}
	return api.SettingsResult(held), nil
}
