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

func (x *request) setPrincipal(p rpc.Principal) {
	x.by = p
	if c := connOf(x.r.Context()); c != nil {
		c.limiter.authenticate(c, p.Grant, p.Valid)
	}
}

// tellScope says in the answer what the key is good for (SECURITY, "Keys").
func (x *request) tellScope(g auth.Grant) {
	x.set("X-Key-Scope", strings.TrimSpace(string(g.Scope)+" "+g.AgentID))
}

// checkKey finds the principal by the key of the Authorization header. A call without that
// header may be signed instead: it has no principal yet. A key that is good, and not for the
// path, is refused once its principal is known.
func (s *Server) checkKey(x *request, to route) *rpc.Error {
	values := x.r.Header.Values("Authorization")
	if len(values) == 0 {
		if to.calls() && x.certificate() == nil { // over TLS nobody but the server reads the key
			return nil
		}
		return noKey
	}
	scheme, presented, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !strings.EqualFold(scheme, "Bearer") || presented == "" {
		return noKey
	}
	key, err := auth.Parse(presented)
	if len(values) > 1 || err != nil {
		return wrongKey
	}
	if to.kind == toReady && s.o.Probe.Matches(key.Reveal()) {
		x.probe, x.key = true, key
		x.setPrincipal(rpc.Principal{Grant: auth.Grant{ID: "probe", Scope: auth.ScopeFull}, Valid: context.Background()})
		return nil
	}
	grant, valid, ok := s.o.Keys.Check(key.Reveal())
	if !ok {
		if err := s.o.Keys.Unknown(); err != nil { // it may be good
			return x.retryAfter(new(rpc.ToError(err)), time.Second)
		}
		return wrongKey
	}
	x.key = key
	x.setPrincipal(rpc.Principal{Grant: grant, Valid: valid})
	x.tellScope(grant)
	if to.kind == toAllEvents { // its query says whose
		return nil
	}
	if err := x.by.MayReach(to.agent); err != nil {
		if refused := s.checkRate(x, 1); refused != nil {
			return refused
		}
		return new(rpc.ToError(err).With(http.StatusForbidden))
	}
	return nil
}

// checkRate counts n requests for the key. Where those are too many, none is
// counted. A probe has no rate.
func (s *Server) checkRate(x *request, n int) *rpc.Error {
	if x.probe {
		return nil
	}
	switch wait := s.access.Load().rate.Take(x.by.Grant.ID, n); wait {
	case 0:
		return nil
	case limit.Never:
		return overRate(n, s.access.Load().RequestsPerMinute)
	default:
		return x.retryAfter(tooMany, wait)
	}
}

// retryAfter returns r with the time after which the client may try again, which the
// header has as well.
func (x *request) retryAfter(r *rpc.Error, wait time.Duration) *rpc.Error {
	seconds := strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
	x.w.Header().Set("Retry-After", seconds)
	said, data := *r.Err, *r.Err.Data
	data.Details += "; try again in " + seconds + " s"
	said.Data = &data
	timed := *r
	timed.Err = &said
	return &timed
}
