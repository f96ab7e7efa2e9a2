package schema

import (
	"reflect"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// The members of a response that says yes, beside those of every response (SPEC §3.3,
// §3.6). A child writes them from types of its own; the dialogues hold both alike.
type (
	done struct {
		Cancelled bool `json:"cancelled,omitzero"`
	}
	plain     struct{}
	compacted struct {
		Cancelled    bool   `json:"cancelled,omitzero"`
		Compacted    bool   `json:"compacted"`
		Reason       string `json:"reason,omitzero"`
		Summary      string `json:"summary,omitzero"`
		By           string `json:"by,omitzero" enum:"model,rule"`
		TokensBefore uint64 `json:"tokens_before,omitzero"`
		TokensAfter  uint64 `json:"tokens_after,omitzero"`
	}
	newSession struct {
		SessionID string `json:"session_id"`
	}
	page struct {
		Messages []pageMessage `json:"messages"`
		Total    uint64        `json:"total"`
		Offset   uint64        `json:"offset"`
	}
	pageMessage struct {
		protocol.Message
		Truncated bool   `json:"truncated,omitzero"`
		Size      uint64 `json:"size,omitzero"`
		File      string `json:"file,omitzero"`
	}
	selected struct {
		Model    string `json:"model"`
		Provider string `json:"provider"`
	}
	models struct {
		Models []model `json:"models"`
	}
	model struct {
		Provider      string `json:"provider"`
		ModelID       string `json:"model_id"`
		ModelName     string `json:"model_name"`
		ContextWindow uint64 `json:"context_window"`
	}
	used struct {
		InputTokens              uint64 `json:"input_tokens"`
		OutputTokens             uint64 `json:"output_tokens"`
		CacheReadInputTokens     uint64 `json:"cache_read_input_tokens"`
		CacheCreationInputTokens uint64 `json:"cache_creation_input_tokens"`
	}
	stats struct {
		InputTokens              uint64   `json:"input_tokens"`
		OutputTokens             uint64   `json:"output_tokens"`
		CacheReadInputTokens     uint64   `json:"cache_read_input_tokens"`
		CacheCreationInputTokens uint64   `json:"cache_creation_input_tokens"`
		Cost                     *float64 `json:"cost"`
		MessageCount             uint64   `json:"message_count"`
		Turns                    uint64   `json:"turns"`
		Model                    string   `json:"model"`
		SessionID                string   `json:"session_id"`
	}
	state struct {
		Streaming              bool        `json:"streaming"`
		TurnID                 *string     `json:"turn_id"`
		Queued                 uint64      `json:"queued"`
		Model                  string      `json:"model"`
		Provider               string      `json:"provider"`
		Reasoning              bool        `json:"reasoning"`
		SessionID              string      `json:"session_id"`
		SessionName            *string     `json:"session_name"`
		SessionFile            *string     `json:"session_file"`
		MessageCount           uint64      `json:"message_count"`
		Cwd                    string      `json:"cwd"`
		Preset                 string      `json:"preset"`
		Permissions            permissions `json:"permissions"`
		SystemPrompt           string      `json:"system_prompt"`
		SystemPromptPath       *string     `json:"system_prompt_path"`
		SystemPromptTruncated  *truncated  `json:"system_prompt_truncated,omitzero"`
		Tokens                 tokens      `json:"tokens"`
		MaxIterations          uint64      `json:"max_iterations"`
		HaltedAtIterationLimit bool        `json:"halted_at_iteration_limit"`
		LastActionAt           *string     `json:"last_action_at"`
		ParentAgentID          *string     `json:"parent_agent_id"`
		Usage                  used        `json:"usage"`
		Cost                   *float64    `json:"cost"`
		Notes                  uint64      `json:"notes"`
		CompactAt              uint64      `json:"compact_at"`
		MaxMessages            uint64      `json:"max_messages"`
		MCPServers             []mcpServer `json:"mcp_servers"`
	}
	permissions struct {
		Level         string               `json:"permission_level" enum:"yolo,trusted,sandboxed"`
		Preset        string               `json:"preset"`
		DisabledTools []string             `json:"disabled_tools"`
		Tools         []string             `json:"tools"`
		Policy        policy               `json:"policy"`
		Allowances    allowances           `json:"session_allowances"`
		Allowed       []protocol.Allowance `json:"allowances"`
		Ceiling       protocol.Permissions `json:"ceiling"`
	}
	policy struct {
		Cwd          string                       `json:"cwd"`
		AllowedPaths *[]string                    `json:"allowed_paths"`
		WritePaths   *[]string                    `json:"write_paths"`
		BlockedPaths []string                     `json:"blocked_paths"`
		Tools        map[string]protocol.ToolRule `json:"tools"`
	}
	allowances struct {
		ReadPaths  []string            `json:"read_paths"`
		WritePaths []string            `json:"write_paths"`
		ExecDirs   map[string][]string `json:"exec_dirs"`
		Tools      []string            `json:"tools"`
	}
	truncated struct {
		Truncated bool   `json:"truncated"`
		Size      uint64 `json:"size"`
		File      string `json:"file,omitzero"`
	}
	tokens struct {
		System    uint64 `json:"system"`
		Tools     uint64 `json:"tools"`
		Messages  uint64 `json:"messages"`
		Total     uint64 `json:"total"`
		Budget    uint64 `json:"budget"`
		Available uint64 `json:"available"`
	}
	mcpServer struct {
		Name      string `json:"name"`
		Transport string `json:"transport" enum:"stdio,http,"`
		State     string `json:"state" enum:"idle,connecting,ready,failed,disabled"`
		Tools     uint64 `json:"tools"`
		Error     string `json:"error,omitzero"`
		Note      string `json:"note,omitzero"`
		Project   bool   `json:"project,omitzero"`
		Target    string `json:"target,omitzero"`
	}
	tools struct {
		Tools []tool `json:"tools"`
	}
	tool struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		InputSchema jsontext.Value `json:"input_schema" schema:"object"`
	}
	directory struct {
		Cwd string `json:"cwd"`
	}
	permitted struct {
		Permissions protocol.Permissions `json:"permissions"`
	}
	prompted struct {
		SystemPromptPath *string `json:"system_prompt_path"`
	}
	noted struct {
		Notes uint64 `json:"notes"`
	}
	served struct {
		Server mcpServer `json:"server"`
	}
)

// answer is what a child answers a command with; nil for nothing.
func answer(c protocol.Command) any {
	switch c.(type) {
	case protocol.Prompt, protocol.FollowUp, protocol.Abort:
		return done{}
	case protocol.Ping, protocol.PermissionResponse, protocol.HostResult:
		return plain{}
	case protocol.Compact:
		return compacted{}
	case protocol.NewSession:
		return newSession{}
	case protocol.GetMessages:
		return page{}
	case protocol.SetModel:
		return selected{}
	case protocol.GetAvailableModels:
		return models{}
	case protocol.GetSessionStats:
		return stats{}
	case protocol.GetState:
		return state{}
	case protocol.ToolsList:
		return tools{}
	case protocol.SetCwd:
		return directory{}
	case protocol.SetPermissions:
		return permitted{}
	case protocol.SetSystemPrompt:
		return prompted{}
	case protocol.UpdateContext:
		return noted{}
	case protocol.MCPConnect, protocol.MCPDisconnect:
		return served{}
	default: // shutdown
		return nil
	}
}

// response is the schema of all responses: a no to any command, the yes to each, and
// one to a command of a later version.
func response() *Schema {
	no := respond("No", &Schema{Type: "string"}, false)
	no.add("error", &Schema{Type: "string"})
	why := &Schema{Enum: []any{protocol.StorageFull, protocol.NotSaved, protocol.BeyondBound}}
	no.Properties.List = append(no.Properties.List, Member{Name: "reason", Schema: why})
	s := &Schema{AnyOf: []*Schema{no}}
	var known []any
	for _, c := range protocol.Commands() {
		known = append(known, c.Name())
		members := answer(c)
		if members == nil {
			continue
		}
		yes := respond("Yes to "+c.Name(), &Schema{Const: c.Name()}, true)
		for _, m := range Fields(reflect.TypeOf(members), Written) {
			yes.Properties.List = append(yes.Properties.List, m)
			if m.Required {
				yes.Required = append(yes.Required, m.Name)
			}
		}
		s.AnyOf = append(s.AnyOf, yes)
	}
	s.AnyOf = append(s.AnyOf, respond(laterTitle, &Schema{Type: "string", Not: &Schema{Enum: known}}, true))
	return s
}

// respond is what every response has.
func respond(title string, command *Schema, ok bool) *Schema {
	s := &Schema{Title: title, Type: "object", Properties: &Members{}}
	s.add("type", &Schema{Const: "response"})
	s.add("id", &Schema{Type: "string"})
	s.add("command", command)
	s.add("ok", &Schema{Const: ok})
	return s
}

// add puts one more member into an object, which is always there.
func (s *Schema) add(name string, of *Schema) {
	s.Properties.List = append(s.Properties.List, Member{Name: name, Required: true, Schema: of})
	s.Required = append(s.Required, name)
}
