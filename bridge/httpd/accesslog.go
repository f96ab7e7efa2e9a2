package httpd

import (
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/tracing"
)

// logFacts are the facts of an exchange for its line in the log, beside what HTTP
// says. The zero value is ready.
type logFacts struct {
	calls []rpc.Record // of a body; the items of a batch in the order in which they ended
	batch bool
	fault error  // what went wrong in the server; nil for none
	agent string // of a stream of events
	ended string // why a stream of events ended; "" for none
}

// note adds a call that has ended.
func (x *exchange) note(r rpc.Record) { x.log.calls = append(x.log.calls, r) }

// noteRefusal notes an answer to what never reached a method.
func (x *exchange) noteRefusal(r *rpc.Error) {
	record := rpc.Refused(r.Err)
	record.Fault = x.log.fault
	x.note(record)
}

// logRequest writes the line of an HTTP request that is over (SPEC §6.6). The items
// of a batch have a line each before it.
func (s *Server) logRequest(x *exchange, status int, read, sent int64) {
	l, grant := &x.log, x.by.Grant
	if grant.ID == "" && !s.unauthenticated.admit(x.to.String(), strconv.Itoa(status)) {
		return
	}
	if l.batch {
		for _, c := range l.calls {
			s.accessLog.Log(level(c), "rpc request", append(fields(c, c.Outcome(), nil), zap.String("request_id", x.id))...)
		}
	}
	one := rpc.Record{Agent: l.agent, Fault: l.fault}
	outcome := "success"
	switch {
	case l.ended != "":
		outcome = l.ended
	case status < http.StatusOK || status >= http.StatusBadRequest:
		outcome = "error"
	}
	if !l.batch && len(l.calls) > 0 {
		one = l.calls[len(l.calls)-1]
		outcome = one.Outcome()
	}
	one.Took = time.Since(x.start)
	more := []zap.Field{
		zap.String("http_method", clipName(x.r.Method)), zap.Int("http_status", status), zap.Stringer("route", x.to),
		zap.Int64("bytes_in", read), zap.Int64("bytes_out", sent),
	}
	if l.batch {
		more = append(more, zap.Int("calls", len(l.calls)))
	}
	at := level(one)
	if one.Method == "" && one.Code != 0 && at == zapcore.InfoLevel {
		at = zapcore.WarnLevel // it was refused
	}
	line := append(fields(one, outcome, more), zap.String("request_id", x.id), zap.String("key", grant.ID), zap.String("key_name", grant.Name))
	if x.trace != (tracing.Parent{}) {
		line = append(line, zap.String("trace_id", x.trace.ID()))
	}
	s.accessLog.Log(at, "http request", line...)
}

// level is that of a line about a call.
func level(r rpc.Record) zapcore.Level {
	if r.Fault != nil {
		return zapcore.ErrorLevel
	}
	return zapcore.InfoLevel
}

// fields are those of a line; more are further members of data.
func fields(r rpc.Record, outcome string, more []zap.Field) []zap.Field {
	fields := []zap.Field{zap.Dict("data", append(r.Fields(outcome), more...)...)}
	if r.Agent != "" {
		fields = append(fields, zap.String("agent", r.Agent))
	}
	if r.Incarnation != 0 {
		fields = append(fields, zap.Uint64("incarnation", r.Incarnation))
	}
	if r.Fault != nil {
		fields = append(fields, zap.Error(r.Fault))
	}
	return fields
}
