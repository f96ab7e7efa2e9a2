package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

// encode makes the message of one export: all spans are of one resource and one scope.
func encode(spans []sdktrace.ReadOnlySpan) *tracepb.TracesData {
	list := make([]*tracepb.Span, len(spans))
	for i, s := range spans {
		list[i] = encodeSpan(s)
	}
	scope, about := spans[0].InstrumentationScope(), spans[0].Resource()
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: encodeAttributes(about.Attributes())}, SchemaUrl: about.SchemaURL(),
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: scope.Name, Version: scope.Version}, Spans: list}},
	}}}
}

func encodeSpan(s sdktrace.ReadOnlySpan) *tracepb.Span {
	id, span, parent := s.SpanContext().TraceID(), s.SpanContext().SpanID(), s.Parent()
	out := &tracepb.Span{
		TraceId: id[:], SpanId: span[:], Name: s.Name(), Kind: encodeKind(s.SpanKind()), Flags: uint32(s.SpanContext().TraceFlags()),
		StartTimeUnixNano: uint64(s.StartTime().UnixNano()), EndTimeUnixNano: uint64(s.EndTime().UnixNano()),
		Attributes: encodeAttributes(s.Attributes()), DroppedAttributesCount: uint32(s.DroppedAttributes()), Status: &tracepb.Status{},
	}
	if parent.SpanID().IsValid() {
		above := parent.SpanID()
		out.ParentSpanId = above[:]
	}
	if s.Status().Code == codes.Error {
		out.Status.Code, out.Status.Message = tracepb.Status_STATUS_CODE_ERROR, s.Status().Description
	}
	return out
}

func encodeKind(k trace.SpanKind) tracepb.Span_SpanKind {
	switch k {
	case trace.SpanKindServer:
		return tracepb.Span_SPAN_KIND_SERVER
	case trace.SpanKindClient:
		return tracepb.Span_SPAN_KIND_CLIENT
	default:
		return tracepb.Span_SPAN_KIND_INTERNAL
	}
}

func encodeAttributes(list []attribute.KeyValue) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, len(list))
	for i, a := range list {
		out[i] = &commonpb.KeyValue{Key: string(a.Key), Value: encodeValue(a.Value)}
	}
	return out
}

// encodeValue writes what is none of ours, a list of OTEL_RESOURCE_ATTRIBUTES perhaps,
// as text.
func encodeValue(v attribute.Value) *commonpb.AnyValue {
	switch v.Type() {
	case attribute.INT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v.AsInt64()}}
	case attribute.BOOL:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.FLOAT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v.AsFloat64()}}
	default:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v.String()}}
	}
}
