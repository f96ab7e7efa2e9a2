package httpd

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/tracing"
)

// exchange is one HTTP request on its way through the checks, with its answer.
type exchange struct {
	w  http.ResponseWriter
	r  *http.Request
	rc *http.ResponseController
	// id is the request's id in the log and in X-Request-Id.
	id    string
	trace tracing.Parent // that the client named, and then that of the call; zero for none
	start time.Time
	to    routeKind
	// by is who asks, once the key was checked, and key what was presented; zero where the
	// body alone can show that it is known.
	by  rpc.Principal
	key auth.Key
	// probe says that the server asks itself: see Options.Probe.
	probe bool
	// whole says that there is no more of the body to read.
	whole bool
	log   logFacts
}

// requestIDs are those that a client may choose: they can stand in a line of a log and
// in a header.
var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._~:/+=@-]{1,128}$`)

// httpRequestID is the id that the client, or a proxy before us, has given the request, or
// else a new one.
func httpRequestID(h http.Header) string {
	if ids := h.Values("X-Request-Id"); len(ids) == 1 && requestIDs.MatchString(ids[0]) {
		return ids[0]
	}
	return uuid.NewString()
}

// answer writes a response with a JSON body, packed if that is worth it and the
// client takes it.
func (s *Server) answer(x *exchange, status int, body []byte) {
	s.write(x, status, "application/json", body)
}

// write writes a response.
func (s *Server) write(x *exchange, status int, media string, body []byte) {
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	h := x.w.Header()
	if x.by.Valid != nil && x.by.Valid.Err() != nil {
		h.Set("Connection", "close") // it ends with its key
	}
	h.Set("Content-Type", media)
	h.Add("Vary", "Accept-Encoding")
	// A client that left has no use for an error.
	if len(body) > minGzip && accepts(x.r.Header.Values("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		x.w.WriteHeader(status)
		_ = writeGzip(x.w, body)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body)
}

// refuse answers a request whose JSON-RPC id is not known. If its body has not arrived
// whole, the server does not wait for the rest: the connection ends.
func (s *Server) refuse(x *exchange, r *rpc.Error) {
	switch r.Status {
	case http.StatusUnauthorized:
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="nexus"`)
	case http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestHeaderFieldsTooLarge, http.StatusHTTPVersionNotSupported:
		x.w.Header().Set("Connection", "close")
	}
	if !x.whole {
		x.w.Header().Set("Connection", "close")
		_ = x.rc.EnableFullDuplex()
	}
	s.answer(x, r.Status, jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: jsonrpc.NullID, Error: r.Err}))
	x.noteRefusal(r)
	if !x.whole {
		x.drainAndClose()
	}
}

// drainTime is how long a client that was refused may go on sending.
const drainTime = 2 * time.Second

// drainAndClose ends the answer and reads some more of the request: a client that is
// still sending would see a broken connection, and not the answer.
func (x *exchange) drainAndClose() {
	_ = x.rc.Flush()
	if c := connOf(x.r.Context()); c != nil {
		_ = c.CloseWrite()
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(drainTime))
	dropped := io.Reader(x.r.Body)
	if b, ok := dropped.(*countedBody); ok {
		dropped = b.ReadCloser // it does not count as read
	}
	_, _ = io.CopyN(io.Discard, dropped, maxDiscard)
}

// fail answers a request that went wrong in the server, and logs why.
func (s *Server) fail(x *exchange, err error) {
	x.log.fault = fmt.Errorf("answer a request: %w", err)
	s.refuse(x, new(rpc.ToError(err)))
}
