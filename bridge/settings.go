package bridge

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// set gives an agent's process a command whose refusal is the fault of the
// parameter.
func (s *Server) set(ctx context.Context, c *call, param string, command protocol.Command) (gjson.Result, error) {
	body, err := s.askID(ctx, c, command)
	if err != nil {
		return gjson.Result{}, refusedChange(c, param, command, err)
	}
	return gjson.ParseBytes(body), nil
}

func (s *Server) setCwd(ctx context.Context, c *call, p api.SetCwdParams) (any, error) {
	body, err := s.set(ctx, c, "cwd", protocol.SetCwd{Cwd: p.Cwd, Within: c.bound()})
	if err != nil {
		return nil, err
	}
	return api.SetCwdResult{Cwd: body.Get("cwd").String()}, nil
}

func (s *Server) getPermissions(ctx context.Context, c *call, _ api.None) (any, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	held := state.Get("permissions")
	result := api.GetPermissionsResult{
		PermissionLevel: held.Get("permission_level").String(),
		Preset:          state.Get("preset").String(),
		DisabledTools:   texts(held.Get("disabled_tools")),
		Policy: api.PermissionPolicy{
			Cwd:          state.Get("cwd").String(),
			AllowedPaths: textsOrNull(held.Get("policy.allowed_paths")),
			WritePaths:   textsOrNull(held.Get("policy.write_paths")),
			BlockedPaths: texts(held.Get("policy.blocked_paths")),
		},
		SessionAllowances: api.SessionAllowances{
			ReadPaths:  texts(held.Get("session_allowances.read_paths")),
			WritePaths: texts(held.Get("session_allowances.write_paths")),
			ExecDirs:   map[string][]string{},
			Tools:      texts(held.Get("session_allowances.tools")),
		},
	}
	if result.Policy.Tools, err = toolRules(held); err != nil {
		return nil, err
	}
	for tool, dirs := range held.Get("session_allowances.exec_dirs").Map() {
		result.SessionAllowances.ExecDirs[tool] = texts(dirs)
	}
	if a, err := s.o.Supervisor.Agent(c.id); err == nil {
		result.Pending = a.PermissionRequests()
	}
	return result, nil
}

// texts are the strings of a list; none if it is something else.
func texts(list gjson.Result) []string {
	out := []string{}
	for _, item := range list.Array() {
		if item.Type == gjson.String {
			out = append(out, item.Str)
		}
	}
	return out
}

func textsOrNull(list gjson.Result) *[]string {
	if !list.IsArray() {
		return nil
	}
	return new(texts(list))
}

func (s *Server) setPermissions(ctx context.Context, c *call, p api.SetPermissionsParams) (any, error) {
	if p.Preset != nil {
		if _, err := s.basis(*p.Preset); err != nil {
			return nil, err
		}
	}
	within := c.bound()
	command, param := protocol.SetPermissions{Preset: p.Preset, Within: within}, "preset"
	if p.HasRules() || within != protocol.WithinCeiling {
		held := gjson.Result{}
		if p.Preset == nil || within != protocol.WithinCeiling { // what is not given stays, so that it is not widened
			param = "permissions"
			state, err := s.state(ctx, c)
			if err != nil {
				return nil, err
			}
			held = state.Get("permissions")
		}
		asked, err := rulesOver(held, p)
		if err != nil {
			return nil, err
		}
		command = protocol.SetPermissions{Permissions: &asked, Within: within}
	}
	if _, err := s.set(ctx, c, param, command); err != nil {
		return nil, err
	}
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	return api.SetPermissionsResult{
		Updated: true, PermissionLevel: state.Get("permissions.permission_level").String(), Preset: state.Get("preset").String(),
	}, nil
}

// rulesOver puts what is asked for in the place of what an agent has, by its
// state; nothing if it was not asked.
func rulesOver(held gjson.Result, p api.SetPermissionsParams) (protocol.Permissions, error) {
	rules := protocol.Permissions{
		Preset:        held.Get("permission_level").String(),
		DisabledTools: texts(held.Get("disabled_tools")), AllowedPaths: texts(held.Get("policy.allowed_paths")),
		WritePaths:   protocol.Value(textsOrNull(held.Get("policy.write_paths"))),
		BlockedPaths: texts(held.Get("policy.blocked_paths")),
	}
	var err error
	if rules.Tools, err = toolRules(held); err != nil {
		return rules, err
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
	} {
		if one.asked != nil {
			*one.rule = append([]string{}, *one.asked...)
		}
	}
	if p.Tools != nil {
		rules.Tools = *p.Tools
	}
	return rules, nil
}

// toolRules are the rules for single tools that an agent has.
func toolRules(held gjson.Result) (map[string]protocol.ToolRule, error) {
	rules := map[string]protocol.ToolRule{}
	for tool, raw := range held.Get("policy.tools").Map() {
		var rule protocol.ToolRule
		if err := strict.Fill([]byte(raw.Raw), &rule, strict.IgnoreUnknown); err != nil {
			return nil, &supervisor.ChildError{Command: "get_state", Message: "the child's answer cannot be read: " + err.Error()}
		}
		rules[tool] = rule
	}
	return rules, nil
}

func (s *Server) respondPermission(ctx context.Context, c *call, p api.RespondPermissionParams) (any, error) {
	if p.Decision != protocol.Deny {
		if err := c.mayGrant("approve its calls"); err != nil {
			return nil, err
		}
	}
	// What does not run has asked for nothing, and need not be started.
	a, err := s.o.Supervisor.Agent(c.id)
	if err != nil {
		return nil, supervisor.ErrNoRequest
	}
	c.incarnation = a.Info().Incarnation
	for _, asked := range a.PermissionRequests() {
		if asked.RequestID == p.RequestID {
			c.note("tool", asked.ToolName)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CommandTimeout)
	defer cancel()
	err = a.RespondPermission(ctx, protocol.PermissionResponse{RequestID: p.RequestID, Decision: p.Decision, Reason: protocol.Value(p.Reason)})
	if e, ok := errors.AsType[*supervisor.DecisionError](err); ok {
		offered := make([]string, len(e.Offered))
		for i, d := range e.Offered {
			offered[i] = string(d)
		}
		return nil, api.Invalid("decision", "want one of %s, which the request offers, is %s", strings.Join(offered, ", "), e.Decision)
	}
	if err != nil {
		return nil, named(c.id, err)
	}
	return api.RespondPermissionResult{Responded: true, RequestID: p.RequestID, Decision: p.Decision}, nil
}

func (s *Server) getSystemPrompt(ctx context.Context, c *call, _ api.None) (any, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	return api.GetSystemPromptResult{
		SystemPrompt:     state.Get("system_prompt").String(),
		SystemPromptPath: known(state.Get("system_prompt_path").String()),
		Truncated:        state.Get("system_prompt_truncated.truncated").Bool(),
	}, nil
}

func (s *Server) setSystemPrompt(ctx context.Context, c *call, p api.SetSystemPromptParams) (any, error) {
	text, err := p.Text()
	if err != nil {
		return nil, err
	}
	if _, err := s.set(ctx, c, "system_prompt", protocol.SetSystemPrompt{SystemPrompt: text}); err != nil {
		return nil, err
	}
	return api.UpdatedResult{Updated: true}, nil
}

func (s *Server) listTools(ctx context.Context, c *call, _ api.None) (any, error) {
	body, err := s.askID(ctx, c, protocol.ToolsList{})
	if err != nil {
		return nil, err
	}
	return read[struct {
		Tools []jsontext.Value `json:"tools"`
	}](body, "tools_list")
}

// read reads a child's answer to a command into R.
func read[R any](body jsontext.Value, command string) (result R, err error) {
	if err := strict.Fill(body, &result, strict.IgnoreUnknown); err != nil {
		return result, &supervisor.ChildError{Command: command, Message: "the child's answer cannot be read: " + err.Error()}
	}
	return result, nil
}
