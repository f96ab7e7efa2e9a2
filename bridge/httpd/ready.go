package httpd

import (
	"net/http"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

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
func (s *Server) ready(x *exchange) {
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
