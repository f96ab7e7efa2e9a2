// Package tracing carries a trace through nexus: which one a request belongs to (W3C
// Trace Context), and where spans begin and end.
//
//	if p, ok := tracing.Parse(header); ok {
//		ctx = tracing.With(ctx, p)
//	}
//	ctx, end := start.Begin(ctx, tracing.Server, "send", tracing.String("nexus.agent", id))
//	defer end("")
//	header = tracing.From(ctx).String()
//
// It knows no exporter: a Start does, and a nil Start begins no spans and passes on
// the trace that came. All of it is safe for concurrent use. See SPEC.md §6.6.
package tracing

import (
	"context"
	"encoding/hex"
	"fmt"
)

// Parent is a span of another program or of ours, under which spans begin. The zero
// value is none.
type Parent struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte // 1: sampled
}

// Parse reads a traceparent of version 00, or the part of a later version that 00
// defines.
func Parse(text string) (p Parent, ok bool) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(text) < length || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
		len(text) > length && (text[:2] == "00" || text[length] != '-') || len(text) > 256 {
		return Parent{}, false
	}
	var version, flags [1]byte
	for _, one := range []struct {
		to   []byte
		text string
	}{{version[:], text[:2]}, {p.Trace[:], text[3:35]}, {p.Span[:], text[36:52]}, {flags[:], text[53:55]}} {
		for i := range len(one.text) {
			if c := one.text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return Parent{}, false
			}
		}
		if _, err := hex.Decode(one.to, []byte(one.text)); err != nil {
			return Parent{}, false
		}
	}
	p.Flags = flags[0] & 1
	if version[0] == 0xff || p.Trace == [16]byte{} || p.Span == [8]byte{} {
		return Parent{}, false
	}
	return p, true
}

// String is the traceparent, of version 00; "" for none.
func (p Parent) String() string {
	if p == (Parent{}) {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-%02x", p.Trace, p.Span, p.Flags)
}

// ID is the trace's id in hexadecimal; "" for none.
func (p Parent) ID() string {
	if p == (Parent{}) {
		return ""
	}
	return hex.EncodeToString(p.Trace[:])
}

type parentKey struct{}

// With returns a context whose work belongs to p; ctx itself where p is none.
func With(ctx context.Context, p Parent) context.Context {
	if p == (Parent{}) {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, p)
}

// From is what [With] put there; the zero value if it did not.
func From(ctx context.Context) Parent {
	p, _ := ctx.Value(parentKey{}).(Parent)
	return p
}

// Kind says on which side of a call a span stands.
type Kind int

// The kinds.
const (
	Internal Kind = iota
	Server        // of a request that came
	Client        // of a request that was made
)

// Attribute is a fact of a span: a string, an int64 or a bool. No prompt, answer, key
// or URL is one.
type Attribute struct {
	Name  string
	Value any
}

// String makes an attribute of a text.
func String(name, value string) Attribute { return Attribute{name, value} }

// Int makes an attribute of a number.
func Int(name string, value int64) Attribute { return Attribute{name, value} }

// End ends a span, with what went wrong ("" for nothing) in a fixed word. It does not
// wait, and only its first call counts.
type End func(fault string, more ...Attribute)

// Start begins a span under the parent that ctx has. The context that it returns has
// the new span for its parent. It does not wait.
type Start func(ctx context.Context, kind Kind, name string, attributes ...Attribute) (context.Context, End)

// Begin is Start; for nil it returns ctx and an End that does nothing.
func (s Start) Begin(ctx context.Context, kind Kind, name string, attributes ...Attribute) (context.Context, End) {
	if s == nil {
		return ctx, func(string, ...Attribute) {}
	}
	return s(ctx, kind, name, attributes...)
}
