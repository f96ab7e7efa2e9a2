package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
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

// Environment is what environ (KEY=VALUE as of os.Environ) says, with no file read:
// enough for a program that asks a server.
func Environment(environ []string) (*Config, error) {
	c := &Config{
		Models:   Models{providers: maps.Clone(vendors), defined: map[string]bool{}},
		Profiles: map[string]Profile{}, Presets: map[string]protocol.Permissions{}, Roles: map[string]Role{}, Kinds: knownKinds,
		KeepUnnamedDays: DefaultKeepUnnamedDays,
		own:             map[string]bool{}, env: map[string]string{}, keyNames: map[string]bool{"NEXUS3_API_KEY": true},
	}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			c.env[name] = value
		}
	}
	home, err := safefile.HomeOf(environ)
	if err != nil {
		return nil, err
	}
	c.Home, c.APIKey = Home(home), c.env["NEXUS3_API_KEY"]
	c.Models.providers["azure"] = c.vendor("azure")
	for name := range vendors {
		c.own[name] = true
	}
	c.noteKeys(vendors)
	return c, nil
}

// Load reads the environment and, each overriding the one before it: config.json in
// the home, .nexus3/config.json in cwd, and the extra files, which must exist. ""
// for cwd is no project. It creates nothing, and refuses a home that is not its user's own
// (safefile.CheckHome), or of a later format (homeformat.Check). An error about what a file says is a *FileError.
func Load(environ []string, cwd string, extra ...string) (*Config, error) {
	home, err := safefile.HomeOf(environ)
	if err == nil {
		err = safefile.CheckHome(home)
	}
	if err == nil {
		err = homeformat.Check(home)
	}
	if err != nil {
		return nil, err
	}
	return LoadAs("", environ, cwd, extra...)
}

// LoadAs is Load for a home that the caller has checked. The file personal, unless it is "",
// stands in the place of config.json in the home, and must exist: a server gives its agents a
// copy of what it has read.
func LoadAs(personal string, environ []string, cwd string, extra ...string) (*Config, error) {
	c, err := Environment(environ)
	if err != nil {
		return nil, err
	}
	err = c.mergePersonal(cmp.Or(personal, c.personalPath()))
	if err != nil && (personal != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return c, c.mergeOthers(cwd, extra)
}

// LoadText is LoadAs without a project, for a personal configuration that holds data and is named path.
func LoadText(path string, data []byte, environ []string) (*Config, error) {
	c, err := Environment(environ)
	if err != nil {
		return nil, err
	}
	c.personal = standard(data)
	return c, c.mergeText(path, c.personal, trusted)
}

func (c *Config) personalPath() string { return c.Home.Path("config.json") }

// Personal is the text of the personal configuration as it was read; "{}" if there is
// none.
func (c *Config) Personal() []byte {
	if c.personal == nil {
		return []byte("{}")
	}
	return c.personal
}

// mergePersonal is mergeText for the personal configuration, which is remembered.
func (c *Config) mergePersonal(path string) (err error) {
	if c.personal, err = ReadText(path); err != nil {
		return &FileError{Path: path, Err: err}
	}
	return c.mergeText(path, c.personal, trusted)
}

// ReadText reads a configuration as JSON: without what standard takes away.
func ReadText(path string) ([]byte, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return standard(data), nil
}

// standard is a file without its comments, and without commas after last members: spaces stand in
// their places, so that the rest is where it was. What is wrong in another way stays, and is told by who reads it.
func standard(data []byte) []byte {
	if plain, err := hujson.Standardize(bytes.Clone(data)); err == nil {
		return plain
	}
	return data
}

// mergeOthers reads the files that override the personal one.
func (c *Config) mergeOthers(cwd string, extra []string) error {
	personal, project := c.personalPath(), filepath.Join(cwd, projectFile)
	if cwd != "" && filepath.Clean(project) != filepath.Clean(personal) {
		if err := c.mergeProject(cwd); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range extra {
		data, err := readBounded(path)
		if err != nil {
			return &FileError{Path: path, Err: err}
		}
		if err := c.mergeText(path, data, trusted); err != nil {
			return err
		}
	}
	return nil
}

// trust says whose word a file is. A project's file comes with the project,
// from anybody: it must not decide where a person's keys are sent.
type trust bool

const (
	trusted   trust = true
	untrusted trust = false
)

// mergeProject is mergeText for the file of the project in cwd, which must belong to our
// user or root.
func (c *Config) mergeProject(cwd string) error {
	path := filepath.Join(cwd, projectFile)
	data, err := withoutPath(safefile.ReadOwn(cwd, projectFile, MaxFileSize))
	if err != nil {
		return &FileError{Path: path, Project: true, Err: err}
	}
	return c.mergeText(path, data, untrusted)
}

// mergeText lays a file that holds data over what is known. The error is a *FileError.
func (c *Config) mergeText(path string, data []byte, by trust) error {
	data = standard(data)
	f, err := c.parse(data, by)
	if err == nil {
		c.lay(path, f, by)
		err = c.checkReferences(f)
	}
	if err != nil {
		line, column := strict.Place(data, err)
		return &FileError{Path: path, Line: line, Column: column, Project: by == untrusted, Err: err}
	}
	return nil
}

// parse reads what one file says, if it may say that.
func (c *Config) parse(data []byte, by trust) (f file, err error) {
	if err := strict.Unmarshal(data, &f, strict.RejectUnknown); err != nil {
		return f, err
	}
	for name, p := range f.Providers {
		if p.Type == "" {
			p.Type = vendors[name].Type
			f.Providers[name] = p
		}
	}
	if err := f.check(); err != nil {
		return f, err
	}
	if by == trusted {
		return f, nil
	}
	if err := c.checkProject(f); err != nil {
		return f, err
	}
	return f, f.checkPresets()
}

// lay puts a file over what is known. A provider or profile is replaced as a
// whole: half of one and half of another is nobody's choice.
func (c *Config) lay(path string, f file, by trust) {
	c.noteKeys(f.Providers)
	for name, p := range f.Providers {
		c.Models.providers[name] = c.completed(name, p)
		c.Models.defined[name] = true
	}
	for name, p := range f.Profiles {
		if by == untrusted { // how much an agent may do is not the project's to say
			p.Preset = c.Profiles[name].Preset
		}
		c.Profiles[name] = p
	}
	maps.Copy(c.Presets, expanded(f.Presets, c.env["HOME"]))
	if f.AllowedPaths != nil {
		c.AllowedPaths = besidesCwd(f.AllowedPaths, c.env["HOME"])
	}
	maps.Copy(c.Roles, f.Roles)
	if len(f.Kinds) > 0 {
		c.layKinds(f.Kinds)
	}
	c.Models.defaultModel = cmp.Or(f.DefaultModel, c.Models.defaultModel)
	c.Models.defaultProvider = cmp.Or(f.DefaultProvider, c.Models.defaultProvider)
	if f.Limits != nil {
		c.Limits = *f.Limits
	}
	if f.Server != nil {
		c.Server = *f.Server
	}
	if f.Sessions != nil {
		c.KeepUnnamedDays = f.Sessions.days()
	}
	if f.Logs != nil {
		c.Logs = *f.Logs
		c.Logs.Dir = withHome(c.Logs.Dir, c.env["HOME"])
	}
	if f.Settings != nil {
		c.Settings = *f.Settings
	}
	if f.Tools != nil {
		c.ToolTime = f.Tools.time()
		c.FetchAddresses, _ = f.Tools.fetchAddresses() // they were checked
		c.CacheBytes = protocol.Value(f.Tools.CacheBytes)
	}
	for name := range f.Providers {
		c.own[name] = by == trusted
	}
	c.Files = append(c.Files, path)
}

// noteKeys remembers which variables hold keys, also those of a provider that a
// later file replaces.
func (c *Config) noteKeys(providers map[string]Provider) {
	for _, p := range providers {
		if p.APIKeyEnv != "" {
			c.keyNames[p.APIKeyEnv] = true
		}
	}
}

func readBounded(path string) ([]byte, error) {
	return withoutPath(safefile.ReadLinked(path, MaxFileSize))
}

func withoutPath(data []byte, err error) ([]byte, error) {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}

// FromProject reports whether a project's file was the last to say what the
// provider is. A server knows nothing of such a one.
func (c *Config) FromProject(provider string) bool {
	own, known := c.own[provider]
	return known && !own
}

// Env is one variable of the environment that Load was given; "" if unset.
func (c *Config) Env(name string) string { return c.env[name] }
