package bridge

import (
	"io"
	"net/http"
)

// String is the name of a route in the log and in the metrics.
func (k targetKind) String() string {
	switch k {
	case toGlobal:
		return "rpc"
	case toAgent:
		return "agent"
	case toEvents:
		return "events"
	case toAllEvents:
		return "all_events"
	case toHealth:
		return "healthz"
	case toReady:
		return "readyz"
	case toMetrics:
		return "metrics"
	case toDocs:
		return "docs"
	case toFile:
		return "page"
	case toPageKey:
		return "page_key"
	default:
		return "none"
	}
}

// counted is a response of which is known how much was answered.
type counted struct {
	http.ResponseWriter
	status int   // 0 before there is one
	sent   int64 // bytes of the body
}

// WriteHeader implements [http.ResponseWriter].
func (c *counted) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.sent += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// body is a request's body of which is known how much was read.
type body struct {
	io.ReadCloser
	read int64
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// account counts a request from now on. What it returns counts its end, and writes
// its line of the access log; a GET /healthz that went well has none, nor has a probe.
func (s *Server) account(x *exchange) (end func()) {
	w, b := &counted{ResponseWriter: x.w}, &body{ReadCloser: x.r.Body}
	x.w, x.r.Body = w, b
	done := s.metrics.Request(x.to.String())
	return func() {
		done(w.status, b.read, w.sent)
		if x.probe || x.to == toHealth && w.status == http.StatusOK {
			return
		}
		s.logExchange(x, w.status, b.read, w.sent)
	}
}
