package bridge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

// Bounds of signed requests (SPEC §6.5).
const (
	signedFor  = 300 * time.Second // a signature may be this old, or this far ahead
	maxKeyless = 16                // bodies without a key that are read at once, to see whether they are signed
)

// letIn notes what lets the request in.
func (x *exchange) letIn(p rpc.Principal) {
	x.by = p
	if c := connOf(x.r.Context()); c != nil {
		c.crowd.show(c, p.Grant, p.Valid)
	}
}

// checkOrigin refuses web pages, but for our own (SPEC §6.11) and those of the
// allowed origins, which are told so (CORS). It answers a preflight, and reports whether the request goes on.
func (s *Server) checkOrigin(x *exchange, to target) bool {
	origins := x.r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	// The Host was checked: what came from a page at the same one is ours. That
	// somebody else had a browser send it is no danger, as no browser adds the key.
	if len(origins) == 1 && origins[0] == "http://"+strings.ToLower(x.r.Host) {
		return true
	}
	if len(origins) > 1 || !s.settings.Load().origins[origins[0]] {
		s.refuse(x, badOrigin)
		return false
	}
	h := x.w.Header()
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	allowed := to.allows()
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" || allowed == nil {
		return true
	}
	h.Set("Access-Control-Allow-Methods", strings.Join(allowed, ", "))
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, Last-Event-ID, X-Request-Id, Traceparent")
	h.Set("Access-Control-Max-Age", "600")
	x.w.WriteHeader(http.StatusNoContent)
	return false
}

// checkKey finds what the key of the Authorization header is good for. A body
// without that header may be signed instead: then there is no principal yet. A key that
// is good, and not for the path, is refused with its principal.
func (s *Server) checkKey(x *exchange, to target) (p rpc.Principal, refused rpc.Error, ok bool) {
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
		if wait := s.settings.Load().rate.Take(grant.ID, 1); wait > 0 {
			return p, s.later(x, tooMany, wait), false
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
	switch wait := s.settings.Load().rate.Take(x.by.Grant.ID, n); wait {
	case 0:
		return rpc.Error{}, true
	case limit.Never:
		return overRate(n, s.settings.Load().RequestsPerMinute), false
	default:
		return s.later(x, tooMany, wait), false
	}
}

// later is the refusal r with word of when to come again.
func (s *Server) later(x *exchange, r rpc.Error, wait time.Duration) rpc.Error {
	x.w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	return r
}

// signatures are those of a body, all of them right.
type signatures struct {
	texts []string
	now   time.Time // as of which they are good
	until time.Time // when the last of them is over
}

// checkSigned checks the signatures of all requests in a body, before any of
// them is carried out: each must be signed if there is no other proof of a key, or
// if the server wants that, and none used before.
func (s *Server) checkSigned(x *exchange, items []jsonrpc.Item) (signed signatures, refused rpc.Error, ok bool) {
	signed.now = time.Now()
	for _, item := range items {
		switch {
		case item.Refused != nil && !x.key.IsZero():
			continue // it is answered as what it is, and nothing is done
		case item.Request.Auth == nil && (x.key.IsZero() || s.settings.Load().RequireSignatures):
			if x.key.IsZero() {
				return signed, noKey, false
			}
			return signed, unsigned, false
		case item.Request.Auth == nil:
			continue
		}
		signature, at, problem := s.verify(x, item.Request)
		if problem != "" {
			return signed, badSignature(problem), false
		}
		if signed.now.Sub(at).Abs() > signedFor {
			return signed, badSignature("its timestamp is more than 300 seconds from the server's time"), false
		}
		signed.texts = append(signed.texts, signature)
		if end := at.Add(signedFor); end.After(signed.until) {
			signed.until = end
		}
	}
	if !s.o.Signatures.Fresh(signed.texts) {
		return signed, badSignature(limit.ErrSeen.Error()), false
	}
	return signed, rpc.Error{}, true
}

// useSignatures uses the signatures of a body that is carried out next.
func (s *Server) useSignatures(x *exchange, signed signatures) (rpc.Error, bool) {
	// A full key ends with this server; what another one has signed must not be done
	// again by the next one.
	lasting := x.by.Grant.Scope != auth.ScopeFull
	switch err := s.o.Signatures.Use(signed.texts, lasting, signed.now, signed.until); {
	case errors.Is(err, limit.ErrSeen):
		return badSignature(err.Error()), false
	case errors.Is(err, limit.ErrFull):
		return s.later(x, tooMany, time.Minute), false
	case err != nil:
		x.log.fault = fmt.Errorf("remember signatures: %w", err)
		return rpc.ToError(err).With(http.StatusServiceUnavailable), false
	}
	return rpc.Error{}, true
}

// verify checks one signature, with the key that was presented, else with the
// full keys, which alone the server knows. problem is "" if it is right.
func (s *Server) verify(x *exchange, r jsonrpc.Request) (signature string, at time.Time, problem string) {
	var signed struct {
		Timestamp jsontext.Value `json:"timestamp"`
		Signature string         `json:"signature"`
	}
	if err := strict.Fill(r.Auth, &signed, strict.RejectUnknown); err != nil {
		return "", at, "member auth: " + err.Error()
	}
	seconds, err := strconv.ParseFloat(string(signed.Timestamp), 64)
	if err != nil || math.Abs(seconds) > 1e12 {
		return "", at, "member auth.timestamp must be seconds since 1970"
	}
	path, _, _ := strings.Cut(x.r.RequestURI, "?")
	text := auth.RequestText(string(signed.Timestamp), path, r)
	if key := x.key; !key.IsZero() {
		if !key.Signed(text, signed.Signature) {
			return "", at, "it is not the presented key's signature of this request"
		}
	} else if grant, valid, ok := s.o.Keys.CheckSignature(text, signed.Signature); ok {
		x.letIn(rpc.Principal{Grant: grant, Valid: valid})
	} else {
		return "", at, "it is no full key's signature of this request"
	}
	return signed.Signature, time.UnixMicro(int64(seconds * 1e6)), ""
}
