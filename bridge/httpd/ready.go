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
	Checks []Check
	// Warnings tells what is wrong with the configuration and does not keep the server
	// from working; safe for concurrent use. May be nil.
	Warnings func() []string
}

// Check is one thing that the server needs for its work.
type Check struct {
	// Name is that of its member in GET /readyz.
	Name string
	// Ask says what is wrong; nil is nothing. It is asked for each GET /readyz and
	// must be safe for concurrent use.
	Ask func() error
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
	if s.o.Readiness.Warnings != nil {
		r.Warnings = append(r.Warnings, s.o.Readiness.Warnings()...)
	}
	for state, n := range stats.Agents {
		r.Agents[state.String()] = n
	}
	for _, c := range s.o.Readiness.Checks {
		r.Checks[c.Name] = "ok"
		if err := c.Ask(); err != nil {
			r.Checks[c.Name] = err.Error()
			r.Status = "unready"
			r.Reasons = append(r.Reasons, c.Name+": "+err.Error())
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
