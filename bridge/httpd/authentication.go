package httpd

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/rpc"
)

// authenticated notes what lets the request in.
func (x *exchange) authenticated(p rpc.Principal) {
	x.by = p
	if c := connOf(x.r.Context()); c != nil {
		c.limiter.authenticate(c, p.Grant, p.Valid)
	}
}

// checkKey finds what the key of the Authorization header is good for. A body
// without that header may be signed instead: then there is no principal yet. A key that
// is good, and not for the path, is refused with its principal.
func (s *Server) checkKey(x *exchange, to route) (p rpc.Principal, refused rpc.Error, ok bool) {
	values := x.r.Header.Values("Authorization")
	if len(values) == 0 {
		return p, noKey, to.kind == toGlobal || to.kind == toAgent
	}
	scheme, presented, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") || presented == "" {
		return p, noKey, false
	}
	key, err := auth.Parse(presented)
	if len(values) > 1 || err != nil {
		return p, wrongKey, false
	}
	if to.kind == toReady && s.o.Probe.Matches(key.Reveal()) {
		x.probe, x.key = true, key
		return rpc.Principal{Grant: auth.Grant{ID: "probe", Scope: auth.ScopeFull}, Valid: context.Background()}, rpc.Error{}, true
	}
	grant, valid, ok := s.o.Keys.Check(key.Reveal())
	if !ok {
		return p, wrongKey, false
	}
	p, x.key = rpc.Principal{Grant: grant, Valid: valid}, key
	x.w.Header().Set("X-Key-Scope", strings.TrimSpace(string(grant.Scope)+" "+grant.AgentID))
	if to.kind == toAllEvents { // its query says whose
		return p, rpc.Error{}, true
	}
	if err := p.MayReach(to.agent); err != nil {
		if wait := s.access.Load().rate.Take(grant.ID, 1); wait > 0 {
			return p, s.retryAfter(x, tooMany, wait), false
		}
		return p, rpc.ToError(err).With(http.StatusForbidden), false
	}
	return p, rpc.Error{}, true
}

// checkRate counts n requests for the key. Where those are too many, none is
// counted. A probe has no rate.
func (s *Server) checkRate(x *exchange, n int) (rpc.Error, bool) {
	if x.probe {
		return rpc.Error{}, true
	}
	switch wait := s.access.Load().rate.Take(x.by.Grant.ID, n); wait {
	case 0:
		return rpc.Error{}, true
	case limit.Never:
		return overRate(n, s.access.Load().RequestsPerMinute), false
	default:
		return s.retryAfter(x, tooMany, wait), false
	}
}

// retryAfter is the refusal r with word of when to come again.
func (s *Server) retryAfter(x *exchange, r rpc.Error, wait time.Duration) rpc.Error {
	x.w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	return r
}
