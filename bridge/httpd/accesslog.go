package httpd

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/tracing"
)

// logFacts are the facts of a request for its line in the log, beside what HTTP
// says. The zero value is ready.
type logFacts struct {
	calls []rpc.Record // of a body; the items of a batch in the order in which they ended
	batch bool
	fault error  // what went wrong in the server; nil for none
	agent string // of a stream of events
	ended string // why a stream of events ended; "" for none
}

func (x *request) note(r rpc.Record) { x.log.calls = append(x.log.calls, r) }

// noteRefusal notes an answer to what never reached a method.
func (x *request) noteRefusal(r *rpc.Error) {
	record := rpc.Refused(r.Err)
	record.Fault = x.log.fault
	x.note(record)
}

// logRequest writes the line of an HTTP request that is over (SPEC §6.6). The items
// of a batch have a line each before it.
func (s *Server) logRequest(x *request, status int, read, sent int64) {
	l, grant := &x.log, x.by.Grant
	lines := 1
	if l.batch {
		lines += len(l.calls)
	}
	if !s.o.Lines.Request(grant, lines, x.to.String()+" "+strconv.Itoa(status)) {
		return
	}
	if l.batch {
		for _, c := range l.calls {
			s.accessLog.Log(level(c), "rpc request", append(fields(c, c.Fields(c.Outcome())), zap.String("request_id", x.id))...)
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
	data := append(one.Fields(outcome),
		zap.String("http_method", rpc.ClipName(x.r.Method)), zap.Int("http_status", status), zap.Stringer("route", x.to),
		zap.Int64("bytes_in", read), zap.Int64("bytes_out", sent),
	)
	if l.batch {
		data = append(data, zap.Int("calls", len(l.calls)))
	}
	at := level(one)
	if one.Method == "" && one.Code != 0 && at == zapcore.InfoLevel {
		at = zapcore.WarnLevel // it was refused
	}
	line := append(fields(one, data), zap.String("request_id", x.id), zap.String("key", grant.ID), zap.String("key_name", grant.Name))
	if x.machine != "" {
		line = append(line, zap.String("machine", x.machine))
	}
	if x.certificate() != nil {
		line = append(line, zap.String("remote", x.r.RemoteAddr))
	}
	if x.trace != (tracing.Parent{}) {
		line = append(line, zap.String("trace_id", x.trace.ID()))
	}
	s.accessLog.Log(at, "http request", line...)
}

// mostFields is how many fields a line has.
const mostFields = 8

func level(r rpc.Record) zapcore.Level {
	if r.Fault != nil {
		return zapcore.ErrorLevel
	}
	return zapcore.InfoLevel
}

// fields are those of a line with that data.
func fields(r rpc.Record, data []zap.Field) []zap.Field {
	fields := append(make([]zap.Field, 0, mostFields), zap.Dict("data", data...))
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

// countedResponse is a response that counts its bytes.
type countedResponse struct {
	http.ResponseWriter
	status int   // 0 before there is one
	sent   int64 // bytes of the body
}

func (c *countedResponse) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *countedResponse) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.sent += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (c *countedResponse) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// countedBody is a request's body that counts the bytes read.
type countedBody struct {
	io.ReadCloser
	read int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// account counts a request that begins. end counts its end, and writes its line of the
// access log; a GET /healthz that went well has none, nor has a probe.
func (s *Server) account(x *request) (end func()) {
	w, b := &countedResponse{ResponseWriter: x.w}, &countedBody{ReadCloser: x.r.Body}
	x.w, x.r.Body = w, b
	done := s.o.Metrics.Request(x.to.String())
	return func() {
		if w.status != 0 {
			_ = x.rc.Flush() // the client waits for no log; if it left, net/http knows
			if c := connOf(x.r.Context()); c != nil {
				c.limiter.setAnswered(c)
			}
		}
		done(w.status, b.read, w.sent)
		if x.probe || x.to == toHealth && w.status == http.StatusOK {
			return
		}
		s.logRequest(x, w.status, b.read, w.sent)
	}
}
