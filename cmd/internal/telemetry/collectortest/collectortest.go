// Package collectortest is a collector of OpenTelemetry traces, for tests.
//
//	c := collectortest.New(t)
//	environ = append(environ, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
//	spans := c.Spans() // of what has been exported
package collectortest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes what is exported. It is safe for concurrent use.
type Collector struct {
	*httptest.Server

	mu      sync.Mutex // guards all below
	spans   []Span
	headers []http.Header
	text    string
}

// Span is one that came.
type Span struct {
	Name, Kind, Trace, ID, Parent, Fault string
	Attributes                           map[string]any // texts and int64
	Resource                             map[string]any
}

// New starts a collector that ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("an export that cannot be read: %v", err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *Collector) take(r *http.Request) error {
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		in = unpacked
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(body, &data); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text += string(body)
	c.headers = append(c.headers, r.Header)
	for _, rs := range data.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				one := Span{
					Name: s.GetName(), Kind: s.GetKind().String()[len("SPAN_KIND_"):], Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
					Parent: hex.EncodeToString(s.GetParentSpanId()), Attributes: values(s.GetAttributes()), Resource: values(rs.GetResource().GetAttributes()),
				}
				if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
					one.Fault, _ = one.Attributes["error.type"].(string)
				}
				c.spans = append(c.spans, one)
			}
		}
	}
	return nil
}

func values(list []*commonpb.KeyValue) map[string]any {
	all := map[string]any{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[a.GetKey()] = v.IntValue
		}
	}
	return all
}

// Spans are those that have come.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span{}, c.spans...)
}

// Headers are those of the exports.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]http.Header{}, c.headers...)
}

// Text is all that has come, as bytes.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}
