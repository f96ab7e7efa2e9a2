package agents

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// DefaultCommandTimeout is how long a child may take to answer anything but a prompt.
const DefaultCommandTimeout = 30 * time.Second

// Role is what an agent is for (SPEC §6.7).
type Role string

// The roles that a configuration can give.
const (
	Planner  Role = api.RolePlanner
	Executor Role = api.RoleExecutor
)

// Admission decides which agents can be started here, and keeps their limits. It is safe for
// concurrent use.
type Admission interface {
	// Admit checks an agent that is to be started, and returns it with the limits that hold.
	// own are those that were asked for; nil for none. An *api.ParamError reaches the client
	// as it is.
	Admit(s supervisor.Spec, own *api.Limits) (supervisor.Spec, error)
	// Kinds are the kinds of agents of other makes, by name. The map is not changed.
	Kinds() map[string]Kind
	// Limits are those that hold for an agent that runs or is saved.
	Limits(agent string) (HeldLimits, error)
	// SetLimits changes those that are given, and saves them. If that fails, nothing is
	// changed.
	SetLimits(agent string, given api.Limits) error
}

// Store is what is kept of agents beside their sessions. It is safe for concurrent use.
type Store interface {
	// Outcome is how a send to a saved agent that does not run ended; "" if that is not known.
	Outcome(agent, requestID string) (supervisor.Outcome, error)
	// Forget drops what is kept of an agent in memory: what is saved under its name is about
	// to become another session's, or none's. No agent of that name runs.
	Forget(agent string)
}

// Options are what a Registry needs.
type Options struct {
	// Supervisor runs the agents. Required.
	Supervisor *supervisor.Supervisor
	// Sessions knows which agents are saved. Required.
	Sessions *sessions.Catalogue
	// Admission decides which agents can be started, and keeps their limits. Required.
	Admission Admission
	// Store is what is kept of agents beside their sessions. Required.
	Store Store
	// Claims say which machine has an agent. Nil where there is one machine alone.
	Claims Claims
	// Placer chooses the machines that agents are handed over to. Required with Claims.
	Placer Placer
	// Host answers what the agents ask for by host_call. It is not asked before New has
	// returned. Nil refuses all.
	Host supervisor.Host
	// CommandTimeout is how long a child may take to answer anything but a prompt; 0 is
	// DefaultCommandTimeout.
	CommandTimeout time.Duration
	Log            *zap.Logger // nil logs nothing
	Settings
}

// Settings are what the configuration decides. They must not be changed.
type Settings struct {
	// Roles are the agents for tasks and plans that name none, by what creates
	// them where they are not there; each has an AgentID. May be nil.
	Roles map[Role]api.CreateAgentParams
	// Presets are those of the configuration, by the built-in preset that each is
	// made of. May be nil.
	Presets map[string]string
	// AllowYolo lets create_agent make agents that are yolo, and saved sessions that are start as such.
	AllowYolo bool
}

// Registry is the registry of agents. See the package comment.
type Registry struct {
	o         Options
	log       *zap.Logger
	settings  atomic.Pointer[Settings]
	locks     KeyLock
	handOvers handOvers
	tree      treeLimit
	last      lastUsed
	temps     atomic.Uint64 // the number of the last temporary agent that was named here
}

// New returns a Registry. It fails if an option that is required is missing.
func New(o Options) (*Registry, error) {
	if o.Supervisor == nil || o.Sessions == nil || o.Admission == nil || o.Store == nil {
		return nil, errors.New("new registry of agents: Supervisor, Sessions, Admission and Store are required")
	}
	o.CommandTimeout = cmp.Or(o.CommandTimeout, DefaultCommandTimeout)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	r := &Registry{o: o, log: o.Log, handOvers: handOvers{placer: o.Placer}}
	r.Reload(o.Settings)
	r.last.id, r.last.sessions, r.last.log = o.Sessions.Last(), o.Sessions, o.Log
	return r, nil
}

// Reload replaces the settings for what is asked from now on.
func (r *Registry) Reload(s Settings) { r.settings.Store(&s) }

// Supervisor is the one that runs the agents.
func (r *Registry) Supervisor() *supervisor.Supervisor { return r.o.Supervisor }

// Sessions knows which agents are saved.
func (r *Registry) Sessions() *sessions.Catalogue { return r.o.Sessions }

// Role is what creates the agents of a role: as the configuration says, or else as create_agent
// without parameters does.
func (r *Registry) Role(role Role) api.CreateAgentParams {
	p := r.settings.Load().Roles[role]
	if p.AgentID == nil {
		p.AgentID = new(string(role))
	}
	return p
}

// CommandTimeout is how long a child may take to answer anything but a prompt.
func (r *Registry) CommandTimeout() time.Duration { return r.o.CommandTimeout }

// Waiting is how many do something with a name, or wait for that.
func (r *Registry) Waiting(id string) int { return r.locks.Waiting(id) }
