package bridge

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/jsonrpc"
)

// maxLoggedID bounds a request's JSON-RPC id in the log, in bytes.
const maxLoggedID = 128

// logCall writes the line of one request (SPEC §6.1). It names the method and
// the ids and never the parameters or the answer. err is nil, an
// *jsonrpc.Error or errClientLeft.
func (s *Server) logCall(x *exchange, c *call, start time.Time, err error) {
	status, code := outcome(err)
	id := c.request.ID.String()
	data := []zap.Field{
		zap.String("method", clipName(c.request.Method)),
		zap.String("id", id[:min(len(id), maxLoggedID)]),
		zap.Float64("duration_ms", milliseconds(time.Since(start))),
		zap.String("status", status),
	}
	if code != 0 {
		data = append(data, zap.Int("code", int(code)))
	}
	fields := []zap.Field{zap.Dict("data", data...), zap.String("request_id", x.id)}
	if c.id != "" {
		fields = append(fields, zap.String("agent", c.id))
	}
	if c.incarnation != 0 {
		fields = append(fields, zap.Uint64("incarnation", c.incarnation))
	}
	s.log.Info("rpc request", fields...)
	s.metrics.Call("client", c.request.Method, int(code), time.Since(start))
	s.audit(c, status, code)
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

// logRefusal writes the line of a request that never reached a method.
func (s *Server) logRefusal(x *exchange, r refusal) {
	s.log.Warn("request refused",
		zap.Dict("data",
			zap.String("method", ""),
			zap.String("id", ""),
			zap.Float64("duration_ms", milliseconds(time.Since(x.start))),
			zap.String("status", "error"),
			zap.Int("code", int(r.err.Code)),
			zap.Int("http_status", r.status),
			zap.String("type", r.err.Data.Type),
		),
		zap.String("request_id", x.id),
	)
}

// logStream writes the line of an event stream that has ended.
func (s *Server) logStream(x *exchange, agent, reason string) {
	s.log.Info("event stream ended",
		zap.Dict("data",
			zap.String("method", "events"),
			zap.String("id", ""),
			zap.Float64("duration_ms", milliseconds(time.Since(x.start))),
			zap.String("status", reason),
		),
		zap.String("request_id", x.id), zap.String("agent", agent),
	)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
