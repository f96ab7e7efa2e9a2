package protocol

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// What becomes of an agent whose working directory is lost with a machine of a cluster.
const (
	CwdLostWait  = "wait"  // for the machine
	CwdLostFresh = "fresh" // it goes on at another one, in an empty directory
)

type (
	// State is the answer to GetState: everything the child knows about itself.
	State struct {
		Streaming             bool            `json:"streaming" wire:"default"` // a turn runs
		TurnID                *string         `json:"turn_id"`                  // id of the turn or compaction that runs
		Queued                uint64          `json:"queued" wire:"default"`    // turns that wait
		Model                 string          `json:"model" wire:"default"`
		Provider              string          `json:"provider" wire:"default"`
		Reasoning             bool            `json:"reasoning" wire:"default"` // the model shows its reasoning
		SessionID             string          `json:"session_id" wire:"default"`
		SessionName           *string         `json:"session_name"` // nil if it has none
		SessionFile           *string         `json:"session_file"` // nil if it is not saved
		MessageCount          uint64          `json:"message_count" wire:"default"`
		Cwd                   string          `json:"cwd" wire:"default"`
		Preset                string          `json:"preset" wire:"default"`
		Permissions           PermissionState `json:"permissions" wire:"default"`
		SystemPrompt          string          `json:"system_prompt" wire:"default"`
		SystemPromptPath      *string         `json:"system_prompt_path"`
		SystemPromptLayers    []string        `json:"system_prompt_layers" wire:"default"` // the files that it came from, in their order
		SystemPromptTruncated *Truncation     `json:"system_prompt_truncated,omitzero"`    // SystemPrompt is only the head
		Environment           string          `json:"environment" wire:"default"`          // the part of each request that tells the model where it works; "" if it gets none
		Tokens                ContextTokens   `json:"tokens" wire:"default"`
		MaxIterations         uint64          `json:"max_iterations" wire:"default"`
		// HaltedAtIterationLimit says that the last turn ended at MaxIterations.
		HaltedAtIterationLimit bool         `json:"halted_at_iteration_limit" wire:"default"`
		LastActionAt           *string      `json:"last_action_at"` // RFC 3339, UTC; nil before the first turn
		ParentAgentID          *string      `json:"parent_agent_id"`
		Usage                  SessionUsage `json:"usage" wire:"default"`
		Cost                   *float64     `json:"cost"`                      // as in Stats
		Notes                  uint64       `json:"notes" wire:"default"`      // of UpdateContext
		CompactAt              uint64       `json:"compact_at" wire:"default"` // percent; 0: never
		MaxMessages            uint64       `json:"max_messages" wire:"default"`
		MCPServers             []MCPServer  `json:"mcp_servers" wire:"default"`
		Settings               TurnSettings `json:"settings" wire:"default"` // all that hold
		// Todo is the list of the tool todo.
		Todo []TodoItem `json:"todo,omitempty" wire:"default"`
		// Program is that of an agent of another make; nil for one of nexus.
		Program *ProgramState `json:"program,omitzero"`
		// CwdLost is fresh if the agent goes on in an empty directory where its own is lost with a machine of a cluster; nil if it waits.
		CwdLost *string `json:"cwd_lost,omitzero"`
		// LostCwd is the directory that it has lost so last; nil for none.
		LostCwd *LostCwd `json:"lost_cwd,omitzero"`
	}

	// LostCwd is a working directory that an agent has lost with a machine of a cluster.
	LostCwd struct {
		Cwd  string    `json:"cwd"`  // absolute
		Node string    `json:"node"` // the machine
		At   time.Time `json:"at"`   // when another machine has taken the agent over, UTC
	}

	// TodoItem is one thing to do.
	TodoItem struct {
		Text   string `json:"text"`
		Status string `json:"status" enum:"pending,in_progress,done"`
	}

	// PermissionState is what an agent may do and what was allowed beside it.
	PermissionState struct {
		Level         string            `json:"permission_level" wire:"default" enum:"yolo,trusted,sandboxed"`
		DisabledTools []string          `json:"disabled_tools" wire:"default"`
		Policy        PermissionPolicy  `json:"policy" wire:"default"`
		Allowances    SessionAllowances `json:"session_allowances" wire:"default"`
		// Allowed are the same allowances, one by one.
		Allowed []Allowance `json:"allowances" wire:"default"`
		// Ceiling is what the agent can hand on to one that it creates. Its Preset is ""
		// if the child did not say.
		Ceiling Permissions `json:"ceiling" wire:"default"`
		Preset  string      `json:"preset" wire:"default"` // the name by which Level was chosen
		Tools   []string    `json:"tools" wire:"default"`  // that the model may call
	}

	// PermissionPolicy is where tools may go. Paths are absolute.
	PermissionPolicy struct {
		Cwd string `json:"cwd" wire:"default"`
		// AllowedPaths are reachable beside Cwd; nil for no bound.
		AllowedPaths *[]string `json:"allowed_paths"`
		// WritePaths, unless nil, are the only ones that may be changed.
		WritePaths   *[]string `json:"write_paths"`
		BlockedPaths []string  `json:"blocked_paths" wire:"default"`
		// Network, unless nil, are the only hosts that programs reach.
		Network *[]string `json:"network"`
		// Tools are rules for single tools, by name.
		Tools map[string]ToolRule `json:"tools" wire:"default"`
	}

	// SessionAllowances are what was allowed for the rest of the session.
	SessionAllowances struct {
		ReadPaths  []string            `json:"read_paths" wire:"default"`
		WritePaths []string            `json:"write_paths" wire:"default"`
		ExecDirs   map[string][]string `json:"exec_dirs" wire:"default"` // by tool
		Tools      []string            `json:"tools" wire:"default"`     // whatever they are called with
	}

	// ContextTokens is how the context window is used, in tokens.
	ContextTokens struct {
		System   uint64 `json:"system" wire:"default"`
		Tools    uint64 `json:"tools" wire:"default"`
		Messages uint64 `json:"messages" wire:"default"`
		Total    uint64 `json:"total" wire:"default"`
		// Budget is the model's context window; Available is what of it a request
		// may take: the rest is kept free for the answer.
		Budget    uint64 `json:"budget" wire:"default"`
		Available uint64 `json:"available" wire:"default"`
	}

	// SessionUsage is what a session has used, in tokens. Cached ones are part of
	// InputTokens.
	SessionUsage struct {
		InputTokens              uint64 `json:"input_tokens" wire:"default"`
		OutputTokens             uint64 `json:"output_tokens" wire:"default"`
		CacheReadInputTokens     uint64 `json:"cache_read_input_tokens" wire:"default"`
		CacheCreationInputTokens uint64 `json:"cache_creation_input_tokens" wire:"default"`
		// Estimated says that the models' services did not count all of it.
		Estimated bool `json:"estimated,omitzero" wire:"default"`
	}

	// MCPServer is an MCP server of the agent's configuration (SPEC §4.9).
	MCPServer struct {
		Name      string   `json:"name"`
		Transport string   `json:"transport" enum:"stdio,http,"` // stdio or http; "" for a project's file that is wrong
		State     MCPState `json:"state" enum:"idle,connecting,ready,failed,disabled"`
		Tools     uint64   `json:"tools"` // how many, as far as they are known
		// Error is why it failed or is disabled, Note what was left out of it or
		// what it waits for.
		Error string `json:"error,omitzero" wire:"default"`
		Note  string `json:"note,omitzero" wire:"default"`
		// Project says that the project's file names it; Target is then what is
		// started or reached, for mcp_connect. At most 1 KiB.
		Project bool   `json:"project,omitzero" wire:"default"`
		Target  string `json:"target,omitzero" wire:"default"`
	}

	// Model is one model of one provider.
	Model struct {
		Provider      string `json:"provider"`
		ModelID       string `json:"model_id"`
		ModelName     string `json:"model_name"`
		ContextWindow uint64 `json:"context_window"` // tokens; 0 if unknown
		// MaxOutput is what one answer may have, in tokens; 0 if unknown.
		MaxOutput uint64 `json:"max_output,omitzero" wire:"default"`
		Price     *Price `json:"price,omitzero"` // nil if unknown
		// Images, Tools and Reasoning say whether the model takes images, calls tools,
		// and reasons before it answers; nil if unknown.
		Images    *bool `json:"images,omitzero"`
		Tools     *bool `json:"tools,omitzero"`
		Reasoning *bool `json:"reasoning,omitzero"`
	}

	// Tool describes a tool to a model.
	Tool struct {
		Name        string         `json:"name"`
		Description string         `json:"description" wire:"default"`
		InputSchema jsontext.Value `json:"input_schema" wire:"default" schema:"object"` // a JSON Schema object
	}

	// Truncation tells of a value that was replaced by its head.
	Truncation struct {
		Truncated bool   `json:"truncated"`
		Size      uint64 `json:"size"` // bytes of the whole
		// File holds the whole; "" if nothing does.
		File string `json:"file,omitzero" wire:"default"`
	}

	// PageMessage is a message of a page (see [MessagesPage]).
	PageMessage struct {
		Message
		// Truncated says that the message alone was too long for a page: its texts
		// are only their heads, and its attachments and some of its calls may be
		// missing.
		Truncated bool `json:"truncated,omitzero" wire:"default"`
		// Size is how long the texts and the inputs of a truncated message are, in
		// bytes. File is the session that holds it whole; "" if nothing does.
		Size int64  `json:"size,omitzero" wire:"default"`
		File string `json:"file,omitzero" wire:"default"`
	}
)

// MCPState is how an MCP server gets on.
type MCPState string

// The states of an MCP server.
const (
	MCPIdle       MCPState = "idle"       // not started; the next turn or call does that
	MCPConnecting MCPState = "connecting" // being started
	MCPReady      MCPState = "ready"      // connected
	MCPFailed     MCPState = "failed"     // it could not be started or broke; the next call tries again
	MCPDisabled   MCPState = "disabled"   // nothing starts it but MCPConnect
)
