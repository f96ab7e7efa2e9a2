package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// maxScrapes is how many scrapes run at once; one more is refused with 503.
const maxScrapes = 4

// Options are where a Metrics reads from.
type Options struct {
	// Supervisor runs the agents. Required.
	Supervisor *supervisor.Supervisor
	// Models is asked for each scrape. Required.
	Models ModelStats
	// Spares is asked for each scrape. Required.
	Spares SpareStats
	// Nodes is asked for each scrape. Required.
	Nodes NodeStats
	// Version is that of the program.
	Version string
}

// ModelStats tells what the models' services were asked. It is safe for concurrent use.
type ModelStats interface{ Models() Models }

// SpareStats tells how many processes wait to become an agent, and how many have become
// one since the server started. It is safe for concurrent use.
type SpareStats interface {
	Spares() (waiting int, used uint64)
}

// NodeStats tells of the machines that the server is one of. It is safe for concurrent use.
type NodeStats interface{ Nodes() api.ListNodesResult }

// Models is what the models' services were asked since the server started.
type Models struct {
	Running  int // requests under way
	Services []Service
}

// Service is one provider of the configuration.
type Service struct {
	Provider  string
	Requests  map[string]uint64 // by what became of them
	Tokens    map[string]uint64 // by kind
	Estimated uint64            // requests whose tokens nobody counted
	Cost      float64           // US dollars, of models whose price is known
}

// Metrics counts and collects.
type Metrics struct {
	registry *prometheus.Registry
	scrape   http.Handler

	calls     *prometheus.HistogramVec // from, method, code
	requests  *prometheus.CounterVec   // route, status
	running   *prometheus.GaugeVec     // route
	received  *prometheus.HistogramVec // route
	sent      *prometheus.HistogramVec // route
	unaudited prometheus.Counter

	byRoute sync.Map // *routeMetrics by the name of a route: these are few
}

// routeMetrics are what requests, running, received and sent have of one route.
type routeMetrics struct {
	running        prometheus.Gauge
	received, sent prometheus.Observer
}

func (m *Metrics) route(name string) *routeMetrics {
	if found, ok := m.byRoute.Load(name); ok {
		return found.(*routeMetrics)
	}
	found, _ := m.byRoute.LoadOrStore(name, &routeMetrics{
		running: m.running.WithLabelValues(name), received: m.received.WithLabelValues(name), sent: m.sent.WithLabelValues(name),
	})
	return found.(*routeMetrics)
}

// New returns a Metrics with a registry of its own.
func New(o Options) *Metrics {
	bytes := prometheus.ExponentialBuckets(256, 4, 9) // to 16 MiB
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nexus_rpc_duration_seconds", Help: "Calls of methods by clients and agents, from dispatch to answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"from", "method", "code"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nexus_http_requests_total", Help: "HTTP requests that were answered.",
		}, []string{"route", "status"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nexus_http_requests_running", Help: "HTTP requests under way, event streams among them.",
		}, []string{"route"}),
		received: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nexus_http_request_bytes", Help: "Bodies of HTTP requests, as far as they were read.", Buckets: bytes,
		}, []string{"route"}),
		sent: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nexus_http_response_bytes", Help: "Bodies of HTTP answers.", Buckets: bytes,
		}, []string{"route"}),
		unaudited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nexus_audit_lines_lost_total", Help: "Audit lines that could not be written.",
		}),
	}
	m.registry.MustRegister(
		m.calls, m.requests, m.running, m.received, m.sent, m.unaudited, newSampler(o),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.scrape = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	return m
}

// Call counts a call of a method that is over. from is "client" or "agent"; code
// is that of its JSON-RPC error, 0 for none.
func (m *Metrics) Call(from, method string, code int, took time.Duration) {
	if _, ok := api.Find(method); !ok {
		method = "unknown"
	}
	label := "ok"
	if code != 0 {
		label = strconv.Itoa(code)
	}
	m.calls.WithLabelValues(from, method, label).Observe(took.Seconds())
}

// Request counts an HTTP request that begins, on one of the server's routes. The
// caller calls done when it is over, with its status and the bytes of both
// bodies; status 0 is that of a client that left without an answer.
func (m *Metrics) Request(route string) (done func(status int, received, sent int64)) {
	of := m.route(route)
	of.running.Inc()
	return func(status int, received, sent int64) {
		of.running.Dec()
		m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
		of.received.Observe(float64(received))
		of.sent.Observe(float64(sent))
	}
}

// Unaudited counts an audit line that was lost.
func (m *Metrics) Unaudited() { m.unaudited.Inc() }

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.scrape.ServeHTTP(w, r) }
