package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/methods"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor"
)

// Bounds of the façade (SPEC §7).
const (
	MaxBody    = 1 << 20  // bytes of a request's body
	MaxBatch   = 100      // items of a batch
	maxDiscard = 8 << 20  // bytes that are read and dropped after a body that is too large
	maxHeader  = 64 << 10 // bytes of a request's line and headers
	headerSlop = 4 << 10  // bytes that net/http adds to its own bound, for its buffer
)

// DefaultMaxStrangers is how many connections may be open that have shown no key, and
// how many of scoped keys.
const DefaultMaxStrangers = 1024

// DefaultDrainTimeout is how long running requests and turns may take when the
// server ends.
const DefaultDrainTimeout = 30 * time.Second

// Options are what a Server needs. Zero durations mean the default beside them.
type Options struct {
	// Supervisor runs the agents. Required.
	Supervisor *supervisor.Supervisor
	// Spec says how to run an agent. AgentID is always set; with that alone,
	// it is an agent whose saved session is to be continued. An *api.ParamError
	// reaches the client as it is. Required; safe for concurrent use.
	Spec func(api.CreateAgentParams) (supervisor.Spec, error)
	// Sessions knows which agents are saved. Required.
	Sessions *sessions.Catalogue
	// Keys are those that a client may present. Required.
	Keys *auth.Keyring
	// Addr is the host and port that is listened on; its port is the one that
	// Host headers must name. Required.
	Addr string
	// Trace begins a span for each call. Nil begins none, and the trace that a client
	// names is passed on.
	Trace tracing.Start
	// Log gets a line for each request; nil logs nothing.
	Log *zap.Logger
	// Audit gets a line for each call that changes something; it is not closed. Nil
	// records none.
	Audit *logfile.Log
	// Signatures are those that were used; it is not closed. Nil remembers them as long
	// as the server lives, which is enough for full keys alone.
	Signatures *limit.Seen
	// Models tells what the models' services were asked, for GET /metrics; safe for
	// concurrent use. May be nil.
	Models func() metrics.Models
	// Shutdown is called when a client asks for shutdown_server, after the
	// server has stopped taking new requests; it must not block. May be nil:
	// Serve returns in any case.
	Shutdown func()
	// Check looks at code for validate_code, within ctx. A *protocol.CodeFailure reaches the
	// client as it is. Required; safe for concurrent use.
	Check func(context.Context, api.ValidateCodeParams) (api.ValidateCodeResult, error)
	// Settings are those of the configuration at the start; Reload replaces them.
	Settings
	// MaxStrangers is how many connections that have shown no key may be open, the
	// oldest of which is closed for another one, and how many of all scoped keys
	// together, where the key with the most of them loses one; 0 is
	// DefaultMaxStrangers.
	MaxStrangers int
	// Moved is called when what is saved under a name is about to become another
	// session's, or none's, and no agent of that name runs. May be nil.
	Moved func(id string)
	// Outcome is how a send to an agent that does not run ended; "" if that is not
	// known. May be nil.
	Outcome func(agent, requestID string) (supervisor.Outcome, error)
	// EventHistory is what is on disk of agents' events. May be nil.
	EventHistory events.History
	// PlansDir is where the records of plans are kept, one file for each run; it
	// is made when it is needed, and one process uses it at a time. Required.
	PlansDir string
	// Version is what GET /healthz says.
	Version string
	// Guard says by what means no process outlives its agent, for GET /readyz.
	Guard string
	// Probe is a key by which the server's own process asks GET /readyz, and nothing
	// else: such requests have no rate and no line of the access log. Nobody else
	// may know it. The zero value is none.
	Probe auth.Key
	// Checks are what GET /readyz asks.
	Checks []Check
	// Warnings tells, for GET /readyz, what is wrong with the configuration and does
	// not keep the server from working; safe for concurrent use. May be nil.
	Warnings func() []string

	ReadTimeout    time.Duration // for a whole request: 30 s
	IdleTimeout    time.Duration // of a kept connection: 120 s
	WriteTimeout   time.Duration // for one response or one batch of events: 30 s
	CommandTimeout time.Duration // for a child to answer anything but a prompt: 30 s
	DrainTimeout   time.Duration // for what runs when the server ends: DefaultDrainTimeout
	Heartbeat      time.Duration // between signs of life on a quiet stream: 15 s
}

// Settings are what the configuration decides. They must not be changed.
type Settings struct {
	Door
	agents.Settings
}

// Door is what a Server lets in (SPEC §6.5). The zero value lets in every program
// with a key, and no web page.
type Door struct {
	// AllowedOrigins are the web pages, as scheme://host:port, that may call.
	AllowedOrigins []string
	// RequestsPerMinute bounds each key; 0 is no limit.
	RequestsPerMinute int
	// RequireSignatures refuses requests without the member auth.
	RequireSignatures bool
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.ReadTimeout, 30 * time.Second},
		{&o.IdleTimeout, 120 * time.Second},
		{&o.WriteTimeout, 30 * time.Second},
		{&o.CommandTimeout, 30 * time.Second},
		{&o.DrainTimeout, DefaultDrainTimeout},
		{&o.Heartbeat, 15 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if o.MaxStrangers <= 0 {
		o.MaxStrangers = DefaultMaxStrangers
	}
	if o.Signatures == nil {
		o.Signatures = new(limit.Seen)
	}
	if o.Warnings == nil {
		o.Warnings = func() []string { return nil }
	}
	if o.Moved == nil {
		o.Moved = func(string) {}
	}
	if o.Outcome == nil {
		o.Outcome = func(string, string) (supervisor.Outcome, error) { return "", nil }
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}

// Server is the façade as an http.Handler and as an actor.
type Server struct {
	o         Options
	log       *zap.Logger
	access    *zap.Logger
	strangers *strangerLog
	metrics   *metrics.Metrics
	hosts     map[string]bool // what a Host header may be, lower case
	settings  atomic.Pointer[settings]
	keyless   chan struct{} // holds one for each body without a key that is being read
	events    *events.Streams
	router    *rpc.Router
	agents    *agents.Registry
	plans     *plan.Runner
	codes     auth.Codes

	requests *rpc.DrainGroup // being dispatched: what a drain waits for
	handlers *rpc.DrainGroup // everything in ServeHTTP: what Serve joins
}

// New returns a Server that serves at once. It fails if an option that is
// required is missing, or if Addr is not on loopback.
func New(o Options) (*Server, error) {
	if o.Supervisor == nil || o.Spec == nil || o.Sessions == nil || o.Keys == nil || o.PlansDir == "" || o.Check == nil {
		return nil, errors.New("new façade: Supervisor, Spec, Sessions, Keys, PlansDir and Check are required")
	}
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("new façade: address %q: %w", o.Addr, err)
	}
	if err := CheckLoopback(host); err != nil {
		return nil, fmt.Errorf("new façade: %w", err)
	}
	o = o.withDefaults()
	s := &Server{o: o, log: o.Log.Named("bridge"), hosts: ownHosts(port), requests: rpc.NewDrainGroup(), handlers: rpc.NewDrainGroup()}
	s.agents, err = agents.New(agents.Options{
		Supervisor: o.Supervisor, Sessions: o.Sessions, Spec: o.Spec, Replaced: o.Moved, Outcome: o.Outcome,
		CommandTimeout: o.CommandTimeout, Log: s.log, Settings: o.Settings.Settings,
	})
	if err != nil {
		return nil, err
	}
	s.keyless = make(chan struct{}, maxKeyless)
	s.Reload(o.Settings)
	s.access = o.Log.Named("access")
	s.strangers = newStrangerLog(s.access)
	s.metrics = metrics.New(metrics.Options{Supervisor: o.Supervisor, Models: o.Models, Version: o.Version})
	s.router = rpc.NewRouter(rpc.Options{Access: s.agents, Metrics: s.metrics, Log: s.log, Trace: o.Trace, Audit: o.Audit})
	s.events = events.New(events.Options{
		Supervisor: o.Supervisor, Agents: s.agents, History: o.EventHistory, Heartbeat: o.Heartbeat, Log: s.log,
	})
	s.plans = plan.NewRunner(plan.Options{Agents: s.agents, Dir: o.PlansDir, Requests: s.requests, Log: s.log})
	methods.Register(s.router, methods.Options{
		Agents: s.agents, Plans: s.plans, Keys: o.Keys, Codes: &s.codes, Checker: checker(o.Check), Shutdown: s.shutdown,
		Addr: o.Addr, Version: o.Version, Log: s.log,
	})
	return s, nil
}

// settings are Settings that are ready to be asked.
type settings struct {
	Settings
	origins map[string]bool // web pages that may call
	rate    *limit.Rate     // by the key's id
}

// Reload replaces the settings for the requests that come from now on. What keys have
// asked lately is forgotten if their rate changes. It is safe for concurrent use with
// everything but itself.
func (s *Server) Reload(to Settings) {
	next := &settings{Settings: to, origins: map[string]bool{}}
	for _, origin := range to.AllowedOrigins {
		next.origins[origin] = true
	}
	if now := s.settings.Load(); now != nil && now.RequestsPerMinute == to.RequestsPerMinute {
		next.rate = now.rate
	} else {
		next.rate = limit.NewRate(to.RequestsPerMinute)
	}
	s.settings.Store(next)
	s.agents.Reload(to.Settings)
}

// shutdown ends the server at the wish of a client.
func (s *Server) shutdown() {
	s.Drain()
	if s.o.Shutdown != nil {
		s.o.Shutdown()
	}
}

// checker is Options.Check as an interface.
type checker func(context.Context, api.ValidateCodeParams) (api.ValidateCodeResult, error)

// Check implements [methods.CodeChecker].
func (c checker) Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	return c(ctx, p)
}

// Launched counts, for GET /metrics, an agent's process that became ready.
func (s *Server) Launched(took time.Duration) { s.metrics.Launched(took) }

func ownHosts(port string) map[string]bool {
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "localhost", "[::1]"} {
		hosts[name+":"+port] = true
		if port == "80" {
			hosts[name] = true
		}
	}
	return hosts
}

// CheckLoopback reports why host is not an address to listen on: it must be
// 127.0.0.1, localhost or ::1.
func CheckLoopback(host string) error {
	switch strings.Trim(host, "[]") {
	case "127.0.0.1", "localhost", "::1":
		return nil
	}
	return fmt.Errorf("refusing to listen on %q: only 127.0.0.1, localhost and ::1 are allowed", host)
}

// Listen listens on a loopback address. Port 0 takes a free one.
func Listen(host string, port int) (net.Listener, error) {
	if err := CheckLoopback(host); err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1" // whatever a resolver may think of the name
	}
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port)))
}
