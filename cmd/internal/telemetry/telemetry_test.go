package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/cmd/internal/telemetry"
	"nexus.internal/cmd/internal/telemetry/collectortest"
	"nexus.internal/protocol/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value
			}
		}
		return ""
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestSpans(t *testing.T) {
	c := collectortest.New(t)
	t.Setenv("OTEL_SERVICE_NAME", "mine") // which the SDK reads
	e, err := telemetry.New(t.Context(), env("OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL+"/", "OTEL_EXPORTER_OTLP_HEADERS=x-token=a%20b, x-more=c", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip"), "v1", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := tracing.Parse(parent)
	start := e.Start()
	ctx, endOuter := start.Begin(tracing.With(t.Context(), p), tracing.Server, "outer", tracing.String("a", "b"), tracing.String("empty", ""))
	inner, endInner := start.Begin(ctx, tracing.Client, "inner")
	endInner("broken", tracing.Int("n", 7))
	endInner("")
	endOuter("")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	spans := c.Spans()
	if len(spans) != 2 {
		t.Fatalf("got %d spans, want 2: %v", len(spans), spans)
	}
	in, out := spans[0], spans[1]
	if in.Name != "inner" || in.Kind != "CLIENT" || in.Fault != "broken" || in.Attributes["n"] != int64(7) || in.Parent != out.ID || in.Trace != p.ID() {
		t.Errorf("inner: %+v", in)
	}
	if out.Name != "outer" || out.Kind != "SERVER" || out.Fault != "" || out.Parent != "b7ad6b7169203331" || len(out.Attributes) != 1 || out.Attributes["a"] != "b" {
		t.Errorf("outer: %+v", out)
	}
	if out.Resource["service.name"] != "mine" || out.Resource["service.version"] != "v1" {
		t.Errorf("resource: %v", out.Resource)
	}
	if got := tracing.From(inner).String(); got != "00-"+p.ID()+"-"+in.ID+"-01" {
		t.Errorf("the context has %s", got)
	}
	if h := c.Headers()[0]; h.Get("X-Token") != "a b" || h.Get("X-More") != "c" || h.Get("Content-Encoding") != "gzip" {
		t.Errorf("headers %v", h)
	}
}

func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want string // on, off or the error
	}{
		{"nothing", nil, "off"},
		{"an endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, "on"},
		{"an endpoint of traces", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/x"}, "on"},
		{"the exporter alone", []string{"OTEL_TRACES_EXPORTER=otlp"}, "on"},
		{"turned off", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}, "off"},
		{"no exporter", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"}, "off"},
		{"another exporter", []string{"OTEL_TRACES_EXPORTER=console"}, `OTEL_TRACES_EXPORTER is "console", want otlp or none`},
		{"another protocol", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc", want http/protobuf`},
		{"no URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=secret@x"}, "OTEL_EXPORTER_OTLP_ENDPOINT is no http or https URL"},
		{"no headers", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_HEADERS=secret"}, "OTEL_EXPORTER_OTLP_HEADERS is no list of NAME=VALUE"},
		{"no time", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TIMEOUT=soon"}, `OTEL_EXPORTER_OTLP_TIMEOUT is "soon", want milliseconds`},
		{"no compression", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_COMPRESSION=zip"}, `OTEL_EXPORTER_OTLP_COMPRESSION is "zip", want gzip or none`},
		{"no certificate", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_CERTIFICATE=/nope"}, "read OTEL_EXPORTER_OTLP_CERTIFICATE: open /nope: no such file or directory"},
		{"a device as certificate", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_CERTIFICATE=/dev/zero"}, "read OTEL_EXPORTER_OTLP_CERTIFICATE: open /dev/zero: is not a regular file"},
		{"a key", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_CLIENT_KEY=/k"}, "OTEL_EXPORTER_OTLP_CLIENT_KEY is not supported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := telemetry.New(t.Context(), env(tt.env...), "v1", zap.NewNop())
			got := map[bool]string{true: "on", false: "off"}[e != nil]
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if (e.Start() != nil) != (tt.want == "on") {
				t.Error("it begins spans though it is off, or none though it is on")
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A collector that takes nothing holds up neither those who begin and end spans, of
// which it loses what is too much, nor the end.
func TestHangingCollector(t *testing.T) {
	telemetry.SetCloseTimeout(t, 20*time.Millisecond)
	asked, released := make(chan struct{}, 100), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(released)
	core, logs := observer.New(zap.InfoLevel)
	e, err := telemetry.New(t.Context(), env("OTEL_EXPORTER_OTLP_ENDPOINT="+hanging.URL), "v1", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	start := e.Start()
	for range 10_000 { // the queue has 2,048
		_, end := start.Begin(t.Context(), tracing.Server, "x")
		end("")
	}
	<-asked
	if err := e.Close(); err == nil {
		t.Error("all was exported to a collector that hangs")
	}
	if n := logs.FilterMessage("traces are lost until the collector takes them again").Len(); n > 1 {
		t.Errorf("%d lines tell of one collector", n)
	}
}

// A collector that is not there has one line in the log, however much is lost.
func TestCollectorThatIsGone(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	core, logs := observer.New(zap.InfoLevel)
	e, err := telemetry.New(t.Context(), env("OTEL_EXPORTER_OTLP_ENDPOINT="+gone.URL), "v1", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	start := e.Start()
	for range 1500 { // of 512 to a batch
		_, end := start.Begin(t.Context(), tracing.Server, "x")
		end("")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if n := logs.Len(); n != 1 || strings.Contains(logs.All()[0].ContextMap()["reason"].(string), "/v1/traces") {
		t.Errorf("%d lines: %v", n, logs.All())
	}
}
