package httpd

import (
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/rpc"
)

// Bounds of a request (SPEC §7).
const (
	MaxBody    = 1 << 20  // bytes of a request's body
	maxBatch   = 100      // items of a batch
	maxDiscard = 8 << 20  // bytes that are read and dropped after a body that is too large
	maxHeader  = 64 << 10 // bytes of a request's line and headers
	headerSlop = 4 << 10  // bytes that net/http adds to its own bound, for its buffer
)

// DefaultMaxUnauthenticated is how many connections may be open that have shown no key, and
// how many of scoped keys.
const DefaultMaxUnauthenticated = 1024

// Options are what a Server needs. What has no default is required.
type Options struct {
	// Router answers the calls.
	Router *rpc.Router
	// Runs are the records that other machines ask for; nil if there are none.
	Runs Runs
	// Events streams the events of agents.
	Events *events.Streams
	// Requests are the calls under way. Once it is closed, calls and new streams are refused.
	Requests *rpc.DrainGroup
	// Keys are those that a client may present.
	Keys *auth.Keyring
	// Budget bounds what the calls of scoped keys hold.
	Budget *rpc.Budget
	// Codes are those for which POST /page/key gives the full key.
	Codes *auth.Codes
	// Signatures are those that were used; it is not closed.
	Signatures *replay.Cache
	// Shared says that ShareRates will run.
	Shared bool
	// Probe is a key by which the server's own process asks GET /readyz, and nothing
	// else: such requests have no rate and no line of the access log. Nobody else
	// may know it. The zero value is none.
	Probe auth.Key
	// Addr is the host and port that is listened on; its port is the one that
	// Host headers must name. The host is a loopback address.
	Addr string
	// Version is what GET /healthz says.
	Version string
	// Readiness is what GET /readyz tells of.
	Readiness Readiness
	// Metrics answer GET /metrics, and count the requests.
	Metrics *metrics.Metrics
	// Log gets a line for each request, as far as Lines lets it, which the Server closes.
	Log   *zap.Logger
	Lines *rpc.LineLimit
	// Access is who may call, at the start; Reload replaces it.
	Access AccessOptions
	// MaxUnauthenticated is how many connections that have shown no key may be open, the
	// oldest of which is closed for another one, and how many of all scoped keys
	// together, where the key with the most of them loses one; 0 is
	// DefaultMaxUnauthenticated.
	MaxUnauthenticated int

	ReadTimeout  time.Duration // for a whole request: 30 s
	IdleTimeout  time.Duration // of a kept connection: 120 s
	WriteTimeout time.Duration // for one response or one batch of events: 30 s
	Heartbeat    time.Duration // between signs of life on a quiet stream
}

// AccessOptions say who may call (SPEC §6.5). The zero value lets in every program with a
// key, and no web page. They must not be changed.
type AccessOptions struct {
	// AllowedOrigins are the web pages, as scheme://host:port, that may call.
	AllowedOrigins []string
	// RequestsPerMinute bounds each key; 0 is no limit.
	RequestsPerMinute int
	// RequireSignatures refuses requests without the member auth.
	RequireSignatures bool
	// Certificate proves the server to clients on other machines (ServeTLS); nil for a server that has none.
	Certificate *Certificate
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.ReadTimeout, 30 * time.Second},
		{&o.IdleTimeout, 120 * time.Second},
		{&o.WriteTimeout, 30 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if o.MaxUnauthenticated <= 0 {
		o.MaxUnauthenticated = DefaultMaxUnauthenticated
	}
	return o
}

// access is AccessOptions that are ready to be asked.
type access struct {
	AccessOptions
	origins map[string]bool // web pages that may call
	rate    *limit.Rate     // by the key's id
}
