package httpd

import (
	"net"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// health answers GET /healthz, and a challenge in its query (SPEC §6.5).
func (s *Server) health(x *request, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	health := api.Health{Status: "ok", Service: api.Service, Version: s.o.Version, SignaturesRequired: s.access.Load().RequireSignatures}
	if s.o.Requests.Closed() {
		health.Status = "draining"
	}
	if asked, err := url.ParseQuery(query); err != nil || asked.Has("challenge") {
		if err != nil || !auth.ValidNonce(asked.Get("challenge")) {
			s.refuse(x, badChallenge)
			return
		}
		proved := false
		if c := x.certificate(); c != nil {
			health.Proof, proved = s.o.Keys.Prove(asked.Get("key"), asked.Get("challenge"), c.address)
		} else if address, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			health.Proof, proved = s.o.Keys.Prove(asked.Get("key"), asked.Get("challenge"), address.String())
		}
		health.KeysUnknown = !proved && s.o.Keys.Unknown() != nil
	}
	body, err := json.Marshal(health)
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}

// Readiness is what GET /readyz tells of.
type Readiness struct {
	Supervisor *supervisor.Supervisor
	// Guard says by what means no process outlives its agent.
	Guard  string
	Health Health
}

// Health checks, for each GET /readyz, what the server needs for its work. It is safe for
// concurrent use.
type Health interface {
	Checks() []Check
	// Warnings tells what is wrong with the configuration and does not keep the server
	// from working.
	Warnings() []string
}

// Check is the state of one thing that the server needs for its work.
type Check struct {
	Name string // that of its member in GET /readyz
	Err  error  // what is wrong; nil is nothing
}

// ready answers GET /readyz (SPEC §6.4): 503 if the server takes no work, or
// could not do it.
func (s *Server) ready(x *request) {
	_ = x.rc.SetReadDeadline(time.Time{})
	stats := s.o.Readiness.Supervisor.Stats()
	r := api.Readiness{
		Status: "ready", Reasons: []string{}, Version: s.o.Version, ProtocolVersion: protocol.Version,
		Agents: map[string]int{}, TurnsRunning: stats.Agents[supervisor.Busy], TurnsWaiting: stats.Waiting,
		Guard: s.o.Readiness.Guard, Checks: map[string]string{}, Warnings: []string{}, Goroutines: runtime.NumGoroutine(),
	}
	r.Warnings = append(r.Warnings, s.o.Readiness.Health.Warnings()...)
	for state, n := range stats.Agents {
		r.Agents[state.String()] = n
	}
	for _, c := range s.o.Readiness.Health.Checks() {
		r.Checks[c.Name] = "ok"
		if c.Err != nil {
			r.Checks[c.Name] = c.Err.Error()
			r.Status = "unready"
			r.Reasons = append(r.Reasons, c.Name+": "+c.Err.Error())
		}
	}
	if s.o.Requests.Closed() {
		r.Status = "draining"
		r.Reasons = append(r.Reasons, "the server is going down")
	}
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		s.fail(x, err)
		return
	}
	status := http.StatusOK
	if r.Status != "ready" {
		status = http.StatusServiceUnavailable
	}
	s.answer(x, status, body)
}
