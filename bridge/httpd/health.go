package httpd

import (
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
)

// health answers GET /healthz, and a challenge in its query (SPEC §6.5).
func (s *Server) health(x *exchange, query string) {
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
		if address, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			health.Proof, _ = s.o.Keys.Prove(asked.Get("key"), asked.Get("challenge"), address.String())
		}
	}
	body, err := json.Marshal(health)
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}
