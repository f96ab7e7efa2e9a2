package bridge

import (
	"net"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/methods"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor"
)

// DefaultDrainTimeout is how long running requests and turns may take when the
// server ends.
const DefaultDrainTimeout = 30 * time.Second

// Runtime knows what the machine can run: agents, and checkers of code.
type Runtime interface {
	agents.Admission
	methods.CodeChecker
}

// Store is what is kept of agents beside their sessions.
type Store interface {
	agents.Store
	events.History
}

// Status is what the server's process tells of itself, for GET /readyz, GET /metrics and list_nodes.
type Status interface {
	httpd.Health
	metrics.ModelStats
	metrics.SpareStats
	methods.Nodes
}

// Machines are those of a cluster, seen from one of them.
type Machines interface {
	forward.Machines
	agents.Claims
	plan.Claims
	httpd.Others
}

// Options are what a Server needs. Zero durations mean the default beside them.
type Options struct {
	// Supervisor runs the agents. Required.
	Supervisor *supervisor.Supervisor
	// Runtime knows the programs that run for agents. Required.
	Runtime Runtime
	// Store is what is kept of agents beside their sessions. Required.
	Store Store
	// Status is what the server's process tells of itself. Required.
	Status Status
	// Sessions knows which agents are saved. Required.
	Sessions *sessions.Catalogue
	// Machines are those of the cluster that the server is one of. Nil for a server alone.
	Machines Machines
	// Keys are those that a client may present. Required.
	Keys *auth.Keyring
	Addr string // see [httpd.Options]. Required.
	// Remote is where clients on other machines reach the server by TLS; Serve closes it. Nil for none. It takes a Certificate in
	// Settings, also in those of Reload.
	Remote net.Listener
	// Trace begins a span for each call. Nil begins none, and the trace that a client
	// names is passed on.
	Trace tracing.Start
	// Log gets a line for each request; nil logs nothing.
	Log *zap.Logger
	// Audit gets a line for each call that changes something; it is not closed. Nil
	// records none.
	Audit *logfile.Tiers
	// Signatures are those that were used; it is not closed. Nil remembers them as long
	// as the server lives, which is enough for full keys alone.
	Signatures *replay.Cache
	// Settings are those of the configuration at the start; Reload replaces them.
	Settings
	MaxUnauthenticated int // see [httpd.Options]
	// Notes are what the conversations of agents that are made later begin with. Required.
	Notes *notes.File
	// PlansDir is where the records of plans are kept, one file for each run; it
	// is made when it is needed, and one process uses it at a time. Required.
	PlansDir string
	Version  string // see [httpd.Options]
	// Guard says by what means no process outlives its agent, for GET /readyz.
	Guard string
	Probe auth.Key // see [httpd.Options]

	// Bounds of HTTP, with the defaults of [httpd.Options].
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration

	CommandTimeout time.Duration // for a child to answer anything but a prompt: agents.DefaultCommandTimeout
	DrainTimeout   time.Duration // for what runs when the server ends: DefaultDrainTimeout
	Heartbeat      time.Duration // between signs of life on a quiet stream: 15 s
}

// Settings are what the configuration decides. They must not be changed.
type Settings struct {
	httpd.AccessOptions
	agents.Settings
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.DrainTimeout, DefaultDrainTimeout},
		{&o.Heartbeat, 15 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if o.Signatures == nil {
		o.Signatures = new(replay.Cache)
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}
