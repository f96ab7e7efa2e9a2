package bridge

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
)

// maxLoggedID bounds a request's JSON-RPC id in the log, in bytes.
const maxLoggedID = 128

// callRecord is what the log has of one call: the method and the ids, and never the
// parameters or the answer.
type callRecord struct {
	method, id  string
	took        time.Duration
	status      string // success, error, client left
	code        jsonrpc.Code
	kind        string // of an error, as in error.data.type
	agent       string
	incarnation uint64
	fault       error // what went wrong in the server; nil for none
}

// logged are the facts of an exchange for its line in the log, beside what HTTP
// says. The zero value is ready.
type logged struct {
	calls []callRecord // of a body; the items of a batch in the order in which they ended
	batch bool
	fault error  // what went wrong in the server; nil for none
	agent string // of a stream of events
	ended string // why a stream of events ended; "" for none
}

// recordCall notes how a call ended, for the metrics and the audit log at once and
// for the log once the request is over. err is nil, an *jsonrpc.Error or
// errClientLeft; fault is its cause where that is the server's own.
func (s *Server) recordCall(x *exchange, c *call, start time.Time, err, fault error) {
	status, code := outcome(err)
	took, id := time.Since(start), c.request.ID.String()
	x.note(callRecord{
		method: clipName(c.request.Method), id: textcut.Head(id, maxLoggedID), took: took, status: status, code: code, kind: kindOf(err),
		agent: c.id, incarnation: c.incarnation, fault: fault,
	})
	s.metrics.Call("client", c.request.Method, int(code), took)
	if fault := cmp.Or(kindOf(err), status); fault != "success" {
		c.endSpan(fault, tracing.Int("rpc.response.status_code", int64(code)))
	} else {
		c.endSpan("")
	}
	s.audit(c, status, code)
}

// beginSpan begins the span of a call, and returns the context that its work has.
func (s *Server) beginSpan(x *exchange, c *call) (ctx context.Context) {
	name := "unknown"
	if m, ok := api.Find(c.request.Method); ok {
		name = m.Name
	}
	ctx, c.endSpan = s.o.Trace.Begin(x.r.Context(), tracing.Server, name, tracing.String("rpc.system.name", "jsonrpc"),
		tracing.String("rpc.method", name), tracing.String("nexus.agent.id", c.id), tracing.String("nexus.request.id", x.id))
	if !x.log.batch {
		x.trace = tracing.From(ctx)
	}
	return ctx
}

// note is safe for concurrent use: the items of a batch end in any order.
func (x *exchange) note(r callRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log.calls = append(x.log.calls, r)
}

// recordRefusal notes an answer to what never reached a method.
func (x *exchange) recordRefusal(r refusal) {
	x.note(callRecord{status: "error", code: r.err.Code, kind: r.err.Data.Type, fault: x.log.fault})
}

// outcome is what a line has of how a call ended. err is nil, an *jsonrpc.Error,
// errClientLeft or errCallerLeft.
func outcome(err error) (status string, code jsonrpc.Code) {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return "error", e.Code
	}
	if err != nil {
		return err.Error(), 0
	}
	return "success", 0
}

// kindOf is the type of an *jsonrpc.Error; "" for another error and for nil.
func kindOf(err error) string {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Data != nil {
		return e.Data.Type
	}
	return ""
}

// logExchange writes the line of an HTTP request that is over (SPEC §6.6). The items
// of a batch have a line each before it.
func (s *Server) logExchange(x *exchange, status int, read, sent int64) {
	l, grant := &x.log, x.pass.grant
	if grant.ID == "" && !s.strangers.admit(x.to.String(), strconv.Itoa(status)) {
		return
	}
	if l.batch {
		for _, c := range l.calls {
			s.access.Log(c.level(), "rpc request", append(c.fields(nil), zap.String("request_id", x.id))...)
		}
	}
	one := callRecord{status: "success", agent: l.agent, fault: l.fault, took: time.Since(x.start)}
	switch {
	case l.ended != "":
		one.status = l.ended
	case status < http.StatusOK || status >= http.StatusBadRequest:
		one.status = "error"
	}
	if !l.batch && len(l.calls) > 0 {
		one = l.calls[len(l.calls)-1]
		one.took = time.Since(x.start)
	}
	more := []zap.Field{
		zap.String("http_method", clipName(x.r.Method)), zap.Int("http_status", status), zap.Stringer("route", x.to),
		zap.Int64("bytes_in", read), zap.Int64("bytes_out", sent),
	}
	if l.batch {
		more = append(more, zap.Int("calls", len(l.calls)))
	}
	level := one.level()
	if one.method == "" && one.code != 0 && level == zapcore.InfoLevel {
		level = zapcore.WarnLevel // it was refused
	}
	fields := append(one.fields(more), zap.String("request_id", x.id), zap.String("key", grant.ID), zap.String("key_name", grant.Name))
	if x.trace != (tracing.Parent{}) {
		fields = append(fields, zap.String("trace_id", x.trace.ID()))
	}
	s.access.Log(level, "http request", fields...)
}

func (c callRecord) level() zapcore.Level {
	if c.fault != nil {
		return zapcore.ErrorLevel
	}
	return zapcore.InfoLevel
}

// fields are those of a line; more are further members of data.
func (c callRecord) fields(more []zap.Field) []zap.Field {
	data := []zap.Field{
		zap.String("method", c.method), zap.String("id", c.id), zap.Float64("duration_ms", milliseconds(c.took)), zap.String("status", c.status),
	}
	if c.code != 0 {
		data = append(data, zap.Int("code", int(c.code)), zap.String("type", c.kind))
	}
	fields := []zap.Field{zap.Dict("data", append(data, more...)...)}
	if c.agent != "" {
		fields = append(fields, zap.String("agent", c.agent))
	}
	if c.incarnation != 0 {
		fields = append(fields, zap.Uint64("incarnation", c.incarnation))
	}
	if c.fault != nil {
		fields = append(fields, zap.Error(c.fault))
	}
	return fields
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
