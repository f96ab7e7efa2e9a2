package httpd

import (
	"io"
	"net/http"
	"time"
)

// countedResponse is a response of which is known how much was answered.
type countedResponse struct {
	http.ResponseWriter
	status int   // 0 before there is one
	sent   int64 // bytes of the body
}

// WriteHeader implements [http.ResponseWriter].
func (c *countedResponse) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
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

// countedBody is a request's body of which is known how much was read.
type countedBody struct {
	io.ReadCloser
	read int64
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// account counts a request that begins. end counts its end, and writes its line of the
// access log; a GET /healthz that went well has none, nor has a probe.
func (s *Server) account(x *exchange) (end func()) {
	w, b := &countedResponse{ResponseWriter: x.w}, &countedBody{ReadCloser: x.r.Body}
	x.w, x.r.Body = w, b
	done := s.o.Metrics.Request(x.to.String())
	return func() {
		done(w.status, b.read, w.sent)
		if x.probe || x.to == toHealth && w.status == http.StatusOK {
			return
		}
		s.logRequest(x, w.status, b.read, w.sent)
	}
}

// scrape answers GET /metrics (SPEC §6.10).
func (s *Server) scrape(x *exchange) {
	_ = x.rc.SetReadDeadline(time.Time{})
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	s.o.Metrics.ServeHTTP(x.w, x.r)
}
