package child

import (
	"context"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/images"
	"nexus.internal/child/journal"
	"nexus.internal/child/mcp"
	"nexus.internal/child/parent"
	"nexus.internal/child/prompt"
	"nexus.internal/child/provider"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Models is where a child's models come from. It is safe for concurrent use.
type Models interface {
	// Select finds a model by its id or as PROVIDER/ID; current is the name of
	// the provider in use, which an id alone refers to first. It does not wait
	// for the network.
	Select(model, current string) (Selected, error)
	// List names what could be selected. It may ask the providers.
	List(ctx context.Context) (protocol.AvailableModels, error)
	// Price is that of a model, by PROVIDER/ID; ok is false where none is known. It
	// asks nobody.
	Price(name string) (p protocol.Price, ok bool)
}

// Selected is one model of one provider, ready for use.
type Selected struct {
	Provider     provider.Provider
	ProviderName string
	Model        string
	// ContextWindow is in tokens; 0 means DefaultContextWindow.
	ContextWindow uint64
	// MaxOutput is what one answer may have, in tokens; 0 if unknown.
	MaxOutput uint64
	// NoReasoning and NoTools say what the model is known not to do: it is asked for no effort,
	// and is offered no tools.
	NoReasoning, NoTools bool
	// Offline says that no language model stands behind the provider:
	// summaries are made by rule and cost nothing.
	Offline bool
}

func (s Selected) name() string { return s.ProviderName + "/" + s.Model }

// Defaults of Options (SPEC §7).
const (
	DefaultMaxIterations = 50
	DefaultContextWindow = 128_000 // tokens
	DefaultCompactAt     = 80      // percent
	DefaultMaxMessages   = 1000
	DefaultGrace         = 1500 * time.Millisecond
)

// Never is an Options.CompactAt.
const Never = -1

// Options is what a child is made of.
type Options struct {
	// Models is required, and so is Start.
	Models Models
	// Start is the model of the first turn.
	Start Selected
	// ToolEnv is where the agent works; nil means that it has no tools.
	ToolEnv *toolenv.Env
	// Parent is asked by the tools. Nil means that nothing is asked.
	Parent *parent.Client
	// Prompt is the system prompt.
	Prompt prompt.Prompt
	// Home is the directory of the personal layer of the system prompt, for when
	// the files are read again; "" for none.
	Home string
	// Images keeps the images of the conversation; nil keeps them beside the
	// Journal's file, or in memory if there is none.
	Images *images.Store
	// Servers are the MCP servers, whose tools ToolEnv has; nil means that there are
	// none. They are prepared before each turn, and started anew when the working
	// directory or the permissions change. Serve does not close them.
	Servers *mcp.Manager
	// Journal saves the conversation; nil means that it is not saved.
	Journal *journal.Journal
	// State is the conversation to go on with. Its SessionID is required.
	State transcript.State
	// Foreign is the program of another make that answers prompts in the place of Models and the
	// tools; nil for none. Serve ends with an error when the program does, and does not close it.
	Foreign *foreign.Agent
	// ParentAgent is the id of the agent that created this one; "" for none.
	ParentAgent string
	// ASCII escapes everything that is not ASCII in what is written.
	ASCII bool
	// SessionUpdates asks for session_update events.
	SessionUpdates bool
	// MaxIterations bounds the provider calls of one turn; 0 means
	// DefaultMaxIterations.
	MaxIterations int
	// CompactAt is how full the context may be, in percent, before old messages
	// give way to a summary; 0 means DefaultCompactAt, Never that they only do
	// where the provider finds a request too large.
	CompactAt int
	// MaxMessages is how many messages a request may carry; 0 means
	// DefaultMaxMessages.
	MaxMessages int
	// Settings are those of the three above, and more; what they do not say is as above, or
	// as the services do. They are valid.
	Settings protocol.TurnSettings
	// ToolBound is what Settings.ToolTimeoutS cannot exceed, in seconds; 0 is no bound.
	ToolBound float64
	// Ending is called once, as the end begins: with nil when the child was told
	// to end or its input did, or with why stdout was lost. A program sets itself
	// a deadline here for what Serve cannot bound, such as a disk that hangs. It
	// must not wait. Nil does nothing.
	Ending func(err error)
	// Log is where the child logs; nil means nowhere. It must not be stdout, and
	// writing to it must not wait for its reader.
	Log *zap.Logger
}

// withDefaults are the options with their defaults in place of zero values.
func (o Options) withDefaults() *Options {
	if o.MaxIterations <= 0 {
		o.MaxIterations = DefaultMaxIterations
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Start.ContextWindow == 0 {
		o.Start.ContextWindow = DefaultContextWindow
	}
	if o.CompactAt == 0 {
		o.CompactAt = DefaultCompactAt
	}
	if o.MaxMessages <= 0 {
		o.MaxMessages = DefaultMaxMessages
	}
	o.Settings = o.Settings.Over(protocol.TurnSettings{
		MaxIterations: new(uint64(o.MaxIterations)), MaxMessages: new(uint64(o.MaxMessages)), CompactAt: new(uint64(max(o.CompactAt, 0))),
	})
	if o.Images == nil {
		o.Images = images.New(images.Options{Dir: images.Dir(o.Journal.Path())})
	}
	if o.Servers == nil {
		o.Servers = mcp.New(mcp.Options{})
	}
	return &o
}
