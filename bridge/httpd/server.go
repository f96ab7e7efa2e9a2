package httpd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/openrpc"
	"nexus.internal/bridge/rpc"
)

// Server is the HTTP side of the façade, as an http.Handler and as an actor.
type Server struct {
	o         Options
	log       *zap.Logger
	accessLog *zap.Logger
	hosts     map[string]bool // what a Host header may be, lower case
	access    atomic.Pointer[access]
	docsPage  func() []byte // made once: that takes 3 ms
	keyless   chan struct{} // holds one for each body without a key that is being read
	conns     *connLimiter
	scrapes   scrapeLimit
	handlers  *rpc.DrainGroup // everything in ServeHTTP: what Stop joins
	drained   *rpc.DrainGroup // the calls that are allowed while the server drains

	server   *http.Server
	machines *http.Server            // for other machines
	cancel   context.CancelCauseFunc // of what the requests' contexts are made of
}

// New returns a Server that serves at once. It fails if Addr is not on loopback.
func New(o Options) (*Server, error) {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", o.Addr, err)
	}
	if err := CheckLoopback(host); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Server{o: o, log: o.Log.Named("bridge"), accessLog: o.Log.Named("access"), hosts: ownHosts(port), handlers: rpc.NewDrainGroup(), drained: rpc.NewDrainGroup()}
	s.docsPage = sync.OnceValue(func() []byte { return openrpc.Page(o.Version, "http://"+o.Addr) })
	s.keyless = make(chan struct{}, maxKeyless)
	s.Reload(o.Access)
	s.conns = newConnLimiter(o.MaxUnauthenticated, o.IdleTimeout)
	s.newServers()
	return s, nil
}

// Reload replaces the access options for the requests that come from now on. What keys have
// asked lately is forgotten if their rate changes. It is safe for concurrent use with
// everything but itself.
func (s *Server) Reload(to AccessOptions) {
	next := &access{AccessOptions: to, origins: map[string]bool{}}
	for _, origin := range to.AllowedOrigins {
		next.origins[origin] = true
	}
	if now := s.access.Load(); now != nil && now.RequestsPerMinute == to.RequestsPerMinute {
		next.rate = now.rate
	} else {
		next.rate = limit.NewRate(to.RequestsPerMinute)
		if s.o.Shared {
			next.rate = limit.NewShared(to.RequestsPerMinute)
		}
	}
	s.access.Store(next)
}

// ServeHTTP runs the checks in the order of SPEC §6.1 and hands on what passes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := connOf(r.Context()); c != nil {
		c.handling(true)
		defer c.handling(false)
	}
	x, to, query := newRequest(w, r)
	defer s.account(x)()
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		// net/http has dropped a Content-Length beside chunks, and a Transfer-Encoding in
		// HTTP/1.0: whoever ended the body by those would see another request behind
		// this one, so nothing behind it is read.
		w.Header().Set("Connection", "close")
	}
	if !s.handlers.Enter() {
		s.refuse(x, draining)
		return
	}
	defer s.handlers.Leave()

	refused := s.checkHead(x)
	if refused == nil && !s.checkOrigin(x, to) {
		return
	}
	if allowed := to.allows(); refused == nil && allowed != nil && !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refused = badMethod
	}
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	switch to.kind {
	case toHealth, toDocs, toFile, toPageKey:
		s.serveAnybody(x, to, query)
		return
	default: // needs a key
	}
	refused = s.checkKey(x, to)
	if refused == nil && !to.calls() {
		refused = s.checkRate(x, 1)
	}
	switch {
	case refused != nil:
		s.refuse(x, refused)
	case to.calls():
		if !x.key.IsZero() && x.by.Grant.Scope != auth.ScopeFull {
			x.share = s.o.Budget.Share(x.by.Grant.ID)
			defer x.share.Close()
		}
		s.serveRPC(x, to)
	default:
		s.serveKeyed(x, to, query)
	}
}

// checkHead refuses a request for its version, its target or its Host.
func (s *Server) checkHead(x *request) *rpc.Error {
	switch {
	case x.r.ProtoMinor > 1: // another major version is refused by net/http
		return unknownVersion
	case !strings.HasPrefix(x.r.RequestURI, "/"):
		return badTarget
	case x.certificate() != nil && !x.certificate().names(x.r.Host):
		return otherHost
	case x.certificate() == nil && !s.hosts[strings.ToLower(x.r.Host)]:
		return badHost
	default:
		return nil
	}
}

// serveAnybody answers what needs no key, and has no body.
func (s *Server) serveAnybody(x *request, to route, query string) {
	switch {
	case !x.whole:
		s.refuse(x, needlessBody)
	case to.kind == toHealth:
		s.health(x, query)
	case to.kind == toDocs:
		s.docs(x, query)
	case to.kind == toPageKey:
		s.pageKey(x)
	default:
		s.serveFile(x, *to.file)
	}
}

// serveKeyed answers a GET whose key is good for it.
func (s *Server) serveKeyed(x *request, to route, query string) {
	switch {
	case to.kind == toNothing:
		s.refuse(x, unknownPath)
	case !x.whole:
		s.refuse(x, needlessBody)
	case to.kind == toEvents, to.kind == toAllEvents:
		s.serveEvents(x, to.agent, query)
	case to.kind == toReady:
		s.ready(x)
	default:
		s.scrape(x)
	}
}
