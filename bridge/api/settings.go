package api

import (
	"fmt"
	"path"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

type (
	// SetCwdParams name a directory, absolute.
	SetCwdParams struct {
		// The working directory from the next turn on, absolute.
		Cwd string `json:"cwd" audit:"text"`
	}

	// SetCwdResult is the working directory from the next turn on.
	SetCwdResult struct {
		Cwd string `json:"cwd"`
	}

	// GetPermissionsResult is the agent's permissions.
	GetPermissionsResult struct {
		// PermissionLevel is yolo, trusted or sandboxed; Preset the name by which
		// it was chosen.
		PermissionLevel   string                     `json:"permission_level"`
		Preset            string                     `json:"preset"`
		DisabledTools     []string                   `json:"disabled_tools"`
		Policy            protocol.PermissionPolicy  `json:"policy"`
		SessionAllowances protocol.SessionAllowances `json:"session_allowances"`
		// Allowances are the same, one by one, as revoke_allowances takes them.
		Allowances []protocol.Allowance `json:"allowances"`
		// Pending are the calls that wait for respond_permission, oldest first.
		Pending []protocol.PermissionRequest `json:"pending"`
	}

	// RevokeAllowancesParams name what was allowed for the session and is not any more.
	RevokeAllowancesParams struct {
		// Allowances as get_permissions has them; all if missing. One that the agent does not have is ignored.
		Allowances *[]protocol.Allowance `json:"allowances,omitzero" audit:"rule"`
	}

	// SetPermissionsParams are the permissions to set, below the agent's ceiling. With a
	// preset, lists that are not given are empty; without one they stay as they are. Paths
	// are absolute.
	SetPermissionsParams struct {
		// trusted, sandboxed or a preset of the configuration.
		Preset *string `json:"preset,omitzero" audit:"text"`
		// Names of tools that the agent does not have.
		DisabledTools *[]string `json:"disabled_tools,omitzero" audit:"rule"`
		// Directories besides cwd that tools may read and change, absolute.
		AllowedPaths *[]string `json:"allowed_paths,omitzero" audit:"rule"`
		// The only directories that tools may change, absolute; none if empty.
		WritePaths *[]string `json:"write_paths,omitzero" audit:"rule"`
		// Directories that tools must not touch, absolute.
		BlockedPaths *[]string `json:"blocked_paths,omitzero" audit:"rule"`
		// The only hosts that programs reach, as example.com, *.example.com or 10.1.2.3:8080; none if empty.
		Network *[]string `json:"network,omitzero" audit:"rule"`
		// Rules for single tools, by the tool's name.
		Tools *map[string]protocol.ToolRule `json:"tools,omitzero" audit:"rule"`
	}

	// SetPermissionsResult is the permissions that hold now.
	SetPermissionsResult struct {
		Updated         bool   `json:"updated"`
		PermissionLevel string `json:"permission_level"`
		Preset          string `json:"preset"`
	}

	// LimitsResult is the limits that hold for an agent.
	LimitsResult struct {
		Limits HeldLimits `json:"limits"`
		// TokensUsed counts against limits.tokens: what the agent and the agents that it
		// created have used.
		TokensUsed uint64 `json:"tokens_used"`
		// CostUsed counts against limits.cost_usd, in US dollars: of those tokens, the ones
		// whose price is known.
		CostUsed float64 `json:"cost_usd_used"`
	}

	// HeldLimits are limits that hold; 0 is no limit.
	HeldLimits protocol.Limits

	// SettingsResult are the settings that hold for the agent's turns. What is missing is as
	// the model's service does, or no bound.
	SettingsResult struct {
		Settings protocol.TurnSettings `json:"settings"`
	}

	// SetSettingsParams are settings to change.
	SetSettingsParams struct {
		// The settings to change, from the next turn on; those that are missing stay as they are.
		Settings *TurnSettings `json:"settings,omitzero" audit:"rule"`
	}

	// SetLimitsParams are limits to change.
	SetLimitsParams struct {
		// The limits to change; those that are missing stay as they are.
		Limits *Limits `json:"limits,omitzero" audit:"rule"`
	}

	// RespondPermissionParams answer a permission_request.
	RespondPermissionParams struct {
		// The request_id of the permission_request.
		RequestID string `json:"request_id" audit:"text"`
		// One of the decisions that the request offers: this call (allow_once), such calls
		// until the session ends (allow_session), or deny.
		Decision protocol.Decision `json:"decision" enum:"allow_once,allow_session,deny" audit:"text"`
		// The reason of a deny, for the model.
		Reason *string `json:"reason,omitzero" audit:"-"`
		// One of the request's options, of the kind of the decision; those that a program of
		// another make offers. The default is the first of that kind.
		OptionID *string `json:"option_id,omitzero" audit:"text"`
	}

	// RespondPermissionResult says that the answer was the first.
	RespondPermissionResult struct {
		Responded bool              `json:"responded"`
		RequestID string            `json:"request_id"`
		Decision  protocol.Decision `json:"decision" enum:"allow_once,allow_session,deny"`
	}

	// GetSystemPromptResult is the system prompt from the next turn on.
	GetSystemPromptResult struct {
		SystemPrompt     string  `json:"system_prompt"`
		SystemPromptPath *string `json:"system_prompt_path"`
		// Layers are the files that it came from, the one with the last word last.
		Layers []string `json:"layers"`
		// Environment follows in each request: the directory, what the agent and its programs
		// may do, the programs that there are, the date. "" if SystemPrompt was set as a whole.
		Environment string `json:"environment"`
		// Truncated says that SystemPrompt is only the head of it.
		Truncated bool `json:"truncated,omitzero"`
	}

	// SetSystemPromptParams have the whole prompt; "" is none, and null goes back
	// to the files of SPEC §4.7.
	SetSystemPromptParams struct {
		// The whole prompt; "" is none, null goes back to the files. At most 262,144 bytes.
		SystemPrompt jsontext.Value `json:"system_prompt" schema:"string,null" audit:"-"`
	}
)

type (
	// CompactResult is the result of a compaction. Reason says why there was none.
	CompactResult struct {
		Compacted    bool   `json:"compacted"`
		Reason       string `json:"reason,omitzero"`
		Summary      string `json:"summary,omitzero"`
		By           string `json:"by,omitzero"` // model, or rule where there is none or it failed
		TokensBefore uint64 `json:"tokens_before,omitzero"`
		TokensAfter  uint64 `json:"tokens_after,omitzero"`
	}

	// ListModelsResult is the models that set_model accepts, as far as they are known.
	ListModelsResult struct {
		Models []protocol.Model `json:"models"`
		// What Models lacks: a provider has more models than are listed, or its list is not known.
		Notes []string `json:"notes,omitempty"`
	}

	// MCPListServersResult is all of them, the personal ones first.
	MCPListServersResult struct {
		Servers []protocol.MCPServer `json:"servers"`
	}

	// MCPServerParams name an MCP server.
	MCPServerParams struct {
		// The server's name.
		Server string `json:"server" audit:"text"`
	}

	// MCPStatusResult is one MCP server.
	MCPStatusResult struct {
		Server protocol.MCPServer `json:"server"`
	}

	// MCPConnectParams name an MCP server to start.
	MCPConnectParams struct {
		// The server's name.
		Server string `json:"server" audit:"text"`
		// The target that mcp_status reports: a server of the project starts only if the
		// client repeats its target.
		Target *string `json:"target,omitzero" audit:"-"`
	}

	// MCPConnectResult is the server, which is ready.
	MCPConnectResult struct {
		Connected bool               `json:"connected"`
		Server    protocol.MCPServer `json:"server"`
	}

	// MCPDisconnectResult is the server, which is disabled.
	MCPDisconnectResult struct {
		Disconnected bool               `json:"disconnected"`
		Server       protocol.MCPServer `json:"server"`
	}
)

func (p SetSettingsParams) check() error {
	if p.Settings == nil {
		return missing("settings")
	}
	return p.Settings.check()
}

func (p SetLimitsParams) check() error {
	if p.Limits == nil {
		return missing("limits")
	}
	return p.Limits.check()
}

func (p SetSystemPromptParams) check() error {
	if kind := p.SystemPrompt.Kind(); kind != '"' && kind != 'n' {
		return Invalid("system_prompt", "must be a string or null")
	}
	return nil
}

// Text is the prompt, once it was checked; nil for null.
func (p SetSystemPromptParams) Text() (text *string, err error) {
	return text, json.Unmarshal(p.SystemPrompt, &text)
}

func (p SetPermissionsParams) check() error {
	if p.Preset == nil && !p.HasRules() {
		return &ParamError{
			Problem: "Invalid params: want one of preset, disabled_tools, allowed_paths, write_paths, blocked_paths, network and tools at least",
		}
	}
	if p.Preset != nil {
		if err := checkPreset(*p.Preset); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		name string
		list *[]string
	}{{"allowed_paths", p.AllowedPaths}, {"write_paths", p.WritePaths}, {"blocked_paths", p.BlockedPaths}} {
		if err := checkPaths(one.name, protocol.Value(one.list)); err != nil {
			return err
		}
	}
	if err := checkWritable("write_paths", protocol.Value(p.WritePaths)); err != nil {
		return err
	}
	if err := checkHosts("network", protocol.Value(p.Network)); err != nil {
		return err
	}
	if n := len(protocol.Value(p.Tools)); n > MaxRules {
		return Invalid("tools", "want at most %d, have %d", MaxRules, n)
	}
	for name := range protocol.Value(p.Tools) {
		if err := protocol.CheckToolName(name); err != nil {
			return Invalid("tools", "a name %v", err)
		}
	}
	return checkTools("disabled_tools", protocol.Value(p.DisabledTools))
}

// HasRules reports whether more is given than a preset.
func (p SetPermissionsParams) HasRules() bool {
	return p.DisabledTools != nil || p.AllowedPaths != nil || p.WritePaths != nil || p.BlockedPaths != nil || p.Network != nil || p.Tools != nil
}

func checkPaths(param string, paths []string) error {
	if n := len(paths); n > MaxRules {
		return Invalid(param, "want at most %d, have %d", MaxRules, n)
	}
	for i, one := range paths {
		if !path.IsAbs(one) || strings.Contains(one, "\x00") {
			return Invalid(fmt.Sprintf("%s[%d]", param, i), "want an absolute path")
		}
	}
	return nil
}

// checkWritable refuses the root of the file system among the only paths that may be changed.
func checkWritable(param string, paths []string) error {
	if i := rights.Everything(paths); i >= 0 {
		return Invalid(fmt.Sprintf("%s[%d]", param, i), "it %s", rights.NotEverything)
	}
	return nil
}

func checkTools(param string, names []string) error {
	if n := len(names); n > MaxRules {
		return Invalid(param, "want at most %d, have %d", MaxRules, n)
	}
	for i, one := range names {
		if err := protocol.CheckToolName(one); err != nil {
			return Invalid(fmt.Sprintf("%s[%d]", param, i), "%v", err)
		}
	}
	return nil
}

func checkHosts(param string, hosts []string) error {
	if n := len(hosts); n > MaxRules {
		return Invalid(param, "want at most %d, have %d", MaxRules, n)
	}
	for i, host := range hosts {
		if _, err := rights.ParseHost(host); err != nil {
			return Invalid(fmt.Sprintf("%s[%d]", param, i), "%v", err)
		}
	}
	return nil
}
