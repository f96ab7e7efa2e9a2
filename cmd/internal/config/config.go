package config

import (
	"fmt"
	"net/netip"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// DefaultPort is where the server listens if nobody says otherwise (SPEC §2).
const DefaultPort = 8765

// projectFile is the name, in an agent's working directory, of a project's configuration.
const projectFile = ".nexus3/config.json"

// MaxFileSize bounds a configuration file, in bytes.
const MaxFileSize = 1 << 20

// Config is everything that the environment and the files say.
type Config struct {
	Home Home
	// APIKey is $NEXUS3_API_KEY: the key of the façade; "" if unset.
	APIKey string
	// Files lists the configuration files that were read, later ones override.
	Files []string

	// What the files say. It must not be changed.
	Models   Models
	Profiles map[string]Profile
	// Presets are the named permissions. In each of them Preset is a built-in one, and
	// no path begins with "~" any more.
	Presets map[string]protocol.Permissions
	// AllowedPaths are those of agents that nothing else names any for, absolute and without "~".
	AllowedPaths []string
	Limits       Limits          // the default ones of the server's agents
	Roles        map[string]Role // the agents for tasks and plans that name none, by planner or executor
	Server       Server          // what the façade lets in
	// Kinds are those of agents of other makes, known ones among them.
	Kinds map[string]Kind
	// KeepUnnamedDays is how many days unnamed sessions are kept after they were last
	// written to; 0 is for good.
	KeepUnnamedDays int
	// Logs says whether and where the server logs sessions.
	Logs Logs
	// Settings are how the turns of agents run, as far as a file says it.
	Settings protocol.TurnSettings
	// ToolTime bounds a call of a tool, whatever time it names; 0 is no such bound.
	ToolTime time.Duration
	// FetchAddresses are what web_fetch may reach beside the public internet.
	FetchAddresses []netip.Prefix
	// CacheBytes bounds the home of an agent's programs; 0 is the default.
	CacheBytes uint64

	personal []byte          // nil if there is none
	own      map[string]bool // of providers: a trusted file was the last to say
	keyNames map[string]bool // every api_key_env that any file or builtin names
	env      map[string]string

	served  bool   // it is of an agent of a server
	project string // the path of the project's file, of such an agent; "" for none
	leftOut error  // why it is left out
}

// Provider says how to reach a source of models.
type Provider struct {
	// Type is "openai" (chat completions), "openai-responses", "anthropic" or "offline"; "" in a file is that of the known
	// provider of this name.
	Type string `json:"type" wire:"default" enum:",openai,openai-responses,anthropic,offline"`
	// BaseURL ends before /chat/completions; "" in a file is the vendor's own. It is ""
	// for one that has no address yet.
	BaseURL string `json:"base_url" wire:"default"`
	// APIKeyEnv names the environment variable that holds the key; "" in a file is the
	// vendor's, if BaseURL is.
	APIKeyEnv string `json:"api_key_env" wire:"default"`
	// AuthMethod is "bearer", "api-key", "x-api-key" or "none"; "" in a file is what
	// the type's own service wants.
	AuthMethod string `json:"auth_method" wire:"default" enum:",bearer,api-key,x-api-key,none"`
	// Models are the models that may be chosen; empty means any.
	Models []Model `json:"models" wire:"default"`
	// MaxTokens bounds one answer, of type "anthropic"; 0 is the default.
	MaxTokens int `json:"max_tokens" wire:"default"`
	// Thinking is "adaptive", "enabled" or "disabled", of type "anthropic"; ""
	// leaves it to the model.
	Thinking string `json:"thinking" wire:"default" enum:",adaptive,enabled,disabled"`
}

// Model is one model of a Provider. What a file leaves out is that of the table of models,
// or unknown.
type Model struct {
	ID   string `json:"id"`
	Name string `json:"name" wire:"default"`
	// ContextWindow and MaxOutput, what one answer may have, are in tokens; 0 if unknown.
	ContextWindow uint64 `json:"context_window" wire:"default"`
	MaxOutput     uint64 `json:"max_output" wire:"default"`
	// Price is nil if unknown.
	Price *protocol.Price `json:"price" wire:"default"`
	// Images, Tools and Reasoning say whether the model takes images, calls tools, and
	// reasons before it answers; nil if unknown.
	Images    *bool `json:"images,omitzero"`
	Tools     *bool `json:"tools,omitzero"`
	Reasoning *bool `json:"reasoning,omitzero"`
}

// Profile is a named set of choices for --profile; "" chooses nothing.
type Profile struct {
	Model    string `json:"model" wire:"default"`
	Provider string `json:"provider" wire:"default"`
	Preset   string `json:"preset" wire:"default"`
	System   string `json:"system" wire:"default"`
}

// Limits bound what each agent of the server may use of the providers and of the
// machine, if it has no limits of its own. 0 is no limit.
type Limits struct {
	// Tokens is for the agent's life, all kinds together.
	Tokens uint64 `json:"tokens" wire:"default"`
	// CostUSD is in US dollars, for the agent's life.
	CostUSD           float64 `json:"cost_usd" wire:"default"`
	RequestsPerMinute uint64  `json:"requests_per_minute" wire:"default"`
	TokensPerMinute   uint64  `json:"tokens_per_minute" wire:"default"`
	// Concurrent is how many requests may be under way.
	Concurrent uint64 `json:"concurrent" wire:"default"`

	MemoryBytes          uint64 `json:"memory_bytes" wire:"default"`
	Processes            uint64 `json:"processes" wire:"default"` // threads count, too
	OpenFiles            uint64 `json:"open_files" wire:"default"`
	CPUSeconds           uint64 `json:"cpu_s" wire:"default"`
	OutputBytesPerSecond uint64 `json:"output_bytes_per_s" wire:"default"`
	TurnSeconds          uint64 `json:"turn_s" wire:"default"`

	// Agents is how many agents there may be of one, itself included; nil is
	// agents.DefaultTreeAgents.
	Agents *uint64 `json:"agents,omitzero"`
}

// Role says how the agents for tasks or plans are created that name none; "" is as if it
// were not said. Where there is a saved session of the name AgentID, they begin with a copy
// of it.
type Role struct {
	AgentID      string `json:"agent_id" wire:"default"` // default: the name of the role
	Preset       string `json:"preset" wire:"default"`
	Cwd          string `json:"cwd" wire:"default"` // absolute
	Model        string `json:"model" wire:"default"`
	Provider     string `json:"provider" wire:"default"`
	SystemPrompt string `json:"system_prompt" wire:"default"`
	Approvals    string `json:"approvals" wire:"default"` // ask or deny
	Kind         string `json:"kind" wire:"default"`      // of agents of another make, with a program
	// Limits of each are as of create_agent, by name.
	Limits map[string]float64 `json:"limits" wire:"default"`
}

// Server says what the façade lets in.
type Server struct {
	// AllowedOrigins are the web pages that may call, as scheme://host:port.
	AllowedOrigins []string `json:"allowed_origins" wire:"default"`
	// RequestsPerMinute bounds each key; 0 is no limit.
	RequestsPerMinute uint64 `json:"requests_per_minute" wire:"default"`
	// RequireSignatures refuses requests that are not signed.
	RequireSignatures bool `json:"require_signatures" wire:"default"`
	// AllowYolo lets create_agent make agents that are yolo, and those of saved sessions that are
	// stay so.
	AllowYolo bool `json:"allow_yolo" wire:"default"`
	// Spares is how many processes wait to become agents; nil is DefaultSpares.
	Spares *uint64 `json:"spares,omitzero"`
}

// DefaultSpares is Server.Spares where no file says it, and MaxSpares its bound.
const (
	DefaultSpares = 1
	MaxSpares     = 16
)

// file is the layout of config.json.
type file struct {
	// Schema names the JSON Schema of this file, for editors. It is not read.
	Schema          string              `json:"$schema" wire:"default"`
	Providers       map[string]Provider `json:"providers" wire:"default"`
	DefaultModel    string              `json:"default_model" wire:"default"`
	DefaultProvider string              `json:"default_provider" wire:"default"`
	Profiles        map[string]Profile  `json:"profiles" wire:"default"`
	// Presets are named permissions. In them Preset is a built-in one.
	Presets map[string]protocol.Permissions `json:"presets" wire:"default"`
	// AllowedPaths are directories besides the working directory, ".", that tools may read and
	// change, of agents whose preset and permissions name none.
	AllowedPaths []string        `json:"allowed_paths,omitzero" wire:"default"`
	Limits       *Limits         `json:"limits,omitzero"`
	Roles        map[string]Role `json:"roles" wire:"default"`
	Server       *Server         `json:"server,omitzero"`
	// Sessions says how long sessions are kept.
	Sessions *Sessions `json:"sessions,omitzero"`
	// Logs says whether and where the server logs sessions.
	Logs *Logs `json:"logs,omitzero"`
	// Settings are how the turns of agents run.
	Settings *protocol.TurnSettings `json:"settings,omitzero"`
	// Tools says how agents use their tools.
	Tools *Tools `json:"tools,omitzero"`
	// Kinds are kinds of agents of other makes, by name.
	Kinds map[string]Kind `json:"kinds" wire:"default"`
}

// FileError says which configuration file is wrong, where and how.
type FileError struct {
	Path string
	// Line and Column begin at 1; a column counts bytes. They are 0 where the error
	// is about no place in the file.
	Line, Column int
	Project      bool // it is the project's
	Err          error
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("configuration %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("configuration %s:%d:%d: %v", e.Path, e.Line, e.Column, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Fault says that err is about a member of the personal configuration, whose path is
// dotted from the top. The error is a *FileError.
func (c *Config) Fault(member string, err error) error {
	fault := &FileError{Path: c.personalPath(), Err: err}
	if len(c.Files) > 0 {
		fault.Path = c.Files[0]
	}
	fault.Line, fault.Column = strict.Place(c.Personal(), &strict.Error{Path: member})
	return fault
}
