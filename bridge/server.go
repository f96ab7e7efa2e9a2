package bridge

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/methods"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Server is the façade as an actor.
type Server struct {
	o       Options
	log     *zap.Logger
	metrics *metrics.Metrics
	http    *httpd.Server
	router  *rpc.Router
	agents  *agents.Registry
	plans   *plan.Runner
	codes   auth.Codes
	forward *forward.Client // nil for a server alone
	lines   *rpc.LineLimit  // closed by http

	requests *rpc.DrainGroup // calls and plans under way: what a drain waits for
}

// New returns a Server that serves at once. It fails if an option that is
// required is missing, or if Addr is not on loopback.
func New(o Options) (*Server, error) {
	if o.Supervisor == nil || o.Runtime == nil || o.Store == nil || o.Status == nil || o.Sessions == nil || o.Keys == nil || o.Notes == nil || o.PlansDir == "" {
		return nil, errors.New("new façade: Supervisor, Runtime, Store, Status, Sessions, Keys, Notes and PlansDir are required")
	}
	o = o.withDefaults()
	s := &Server{o: o, log: o.Log.Named("bridge"), requests: rpc.NewDrainGroup()}
	var err error
	var elsewhere interface {
		rpc.Elsewhere
		events.Elsewhere
	}
	var claims agents.Claims
	var placer agents.Placer
	var runs plan.Claims
	var others plan.Others
	if o.Machines != nil {
		s.forward = forward.NewClient(o.Machines)
		elsewhere, claims, placer, runs, others = s.forward, o.Machines, s.forward, o.Machines, s.forward
	}
	s.agents, err = agents.New(agents.Options{
		Supervisor: o.Supervisor, Sessions: o.Sessions, Admission: o.Runtime, Store: o.Store, Host: s, Claims: claims, Placer: placer,
		CommandTimeout: o.CommandTimeout, Log: s.log, Settings: o.Settings.Settings,
	})
	if err != nil {
		return nil, err
	}
	s.metrics = metrics.New(metrics.Options{Supervisor: o.Supervisor, Models: o.Status, Spares: o.Status, Nodes: o.Status, Version: o.Version})
	s.router = rpc.NewRouter(rpc.Options{Access: s.agents.Access(), Metrics: s.metrics, Log: s.log, Trace: o.Trace, Audit: o.Audit, Elsewhere: elsewhere})
	tasks := task.NewRunner(task.Options{Agents: s.agents, Dir: filepath.Join(o.PlansDir, "tasks"), Requests: s.requests, Log: s.log})
	s.plans = plan.NewRunner(plan.Options{Agents: s.agents, Tasks: tasks, Dir: o.PlansDir, Claims: runs, Others: others, Requests: s.requests, Log: s.log})
	methods.Register(s.router, methods.Options{
		Nodes: o.Status, Agents: s.agents, Plans: s.plans, Tasks: tasks, Keys: o.Keys, Codes: &s.codes, Checker: o.Runtime, Notes: o.Notes, Requests: s.requests,
		Addr: o.Addr, Version: o.Version, Log: s.log,
	})
	s.lines = rpc.NewLineLimit(o.Log.Named("access"))
	s.http, err = httpd.New(httpd.Options{
		Router: s.router, Runs: s.plans,
		Events: events.New(events.Options{
			Supervisor: o.Supervisor, Agents: s.agents.Access(), History: o.Store, Elsewhere: elsewhere, Heartbeat: o.Heartbeat, Log: s.log,
		}),
		Requests: s.requests, Keys: o.Keys, Budget: rpc.NewBudget(rpc.DefaultBudget, rpc.DefaultKeyBudget), Codes: &s.codes, Signatures: o.Signatures, Shared: o.Machines != nil, Probe: o.Probe,
		Addr: o.Addr, Version: o.Version, Metrics: s.metrics, Log: o.Log, Lines: s.lines,
		Readiness: httpd.Readiness{Supervisor: o.Supervisor, Guard: o.Guard, Health: o.Status},
		Access:    o.AccessOptions, MaxUnauthenticated: o.MaxUnauthenticated,
		ReadTimeout: o.ReadTimeout, IdleTimeout: o.IdleTimeout, WriteTimeout: o.WriteTimeout, Heartbeat: o.Heartbeat,
	})
	if err != nil {
		return nil, fmt.Errorf("new façade: %w", err)
	}
	return s, nil
}

// Reload replaces the settings for the requests that come from now on. What keys have
// asked lately is forgotten if their rate changes. It is safe for concurrent use with
// everything but itself.
func (s *Server) Reload(to Settings) {
	s.http.Reload(to.AccessOptions)
	s.agents.Reload(to.Settings)
}

var _ supervisor.Host = (*Server)(nil)

// HostCall implements [supervisor.Host]: see [rpc.AgentCalls].
func (s *Server) HostCall(ctx context.Context, from supervisor.Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError) {
	return rpc.AgentCalls{Router: s.router, Requests: s.requests, Log: s.log, Lines: s.lines}.Serve(ctx, from, method, params)
}
