package telemetry

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"nexus.internal/protocol/tracing"
)

// closeTimeout bounds what the end of the server waits for the collector.
var closeTimeout = 2 * time.Second

// Exporter sends spans to a collector.
type Exporter struct {
	to       *collector
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// wanted reports whether the environment asks for traces, or why it asks for some that
// there are not.
func wanted(getenv func(string) string) (bool, error) {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	endpoint := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, want otlp or none", exporter)
	}
	return true, nil
}

// New returns an exporter as the environment of the process asks for one, nil if it
// does not. It connects to nothing yet. Errors of the exporter go to log.
func New(ctx context.Context, getenv func(string) string, version string, log *zap.Logger) (*Exporter, error) {
	if on, err := wanted(getenv); !on {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", zap.Error(err)) }))
	to, err := newCollector(getenv, log)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "nexus"), attribute.String("service.version", version),
	), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The queue has 2,048 spans unless the environment says otherwise; one that is full
	// loses spans, and nobody waits.
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(about))
	return &Exporter{to: to, provider: provider, tracer: provider.Tracer("nexus")}, nil
}

// Start is a [tracing.Start]; nil for a nil Exporter.
func (e *Exporter) Start() tracing.Start {
	if e == nil {
		return nil
	}
	return e.start
}

func (e *Exporter) start(ctx context.Context, kind tracing.Kind, name string, attributes ...tracing.Attribute) (context.Context, tracing.End) {
	parent := trace.ContextWithRemoteSpanContext(context.Background(), spanContext(tracing.From(ctx)))
	_, span := e.tracer.Start(parent, name, trace.WithSpanKind(kinds[kind]), trace.WithAttributes(attributesOf(attributes)...))
	var once sync.Once
	return tracing.With(ctx, parentOf(span.SpanContext())), func(fault string, more ...tracing.Attribute) {
		once.Do(func() {
			span.SetAttributes(attributesOf(more)...)
			if fault != "" {
				span.SetAttributes(attribute.String("error.type", fault))
				span.SetStatus(codes.Error, "")
			}
			span.End()
		})
	}
}

var kinds = map[tracing.Kind]trace.SpanKind{
	tracing.Internal: trace.SpanKindInternal, tracing.Server: trace.SpanKindServer, tracing.Client: trace.SpanKindClient,
}

func spanContext(p tracing.Parent) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.Trace, SpanID: p.Span, TraceFlags: trace.TraceFlags(p.Flags), Remote: true})
}

func parentOf(c trace.SpanContext) tracing.Parent {
	return tracing.Parent{Trace: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags())}
}

// attributesOf leaves out empty texts.
func attributesOf(list []tracing.Attribute) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(list))
	for _, a := range list {
		switch v := a.Value.(type) {
		case string:
			if v != "" {
				out = append(out, attribute.String(a.Name, v))
			}
		case int64:
			out = append(out, attribute.Int64(a.Name, v))
		case bool:
			out = append(out, attribute.Bool(a.Name, v))
		}
	}
	return out
}

// Close sends what is left, for at most 2 s, and ends the exporter. Nil does nothing.
func (e *Exporter) Close() error {
	if e == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	defer e.to.end() // of an export that takes longer
	return e.provider.Shutdown(ctx)
}
