package httpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// listener makes a conn of each connection.
type listener struct {
	net.Listener
	limiter *connLimiter
	remote  *Server // that clients on other machines reach by TLS; nil for those on this machine
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: c, raw: c, limiter: l.limiter, ending: ending{finished: make(chan struct{})}}
	if l.remote != nil {
		l.encrypt(one)
	}
	l.limiter.add(one)
	return one, nil
}

// conn gives a JSON-RPC body to the refusals that net/http makes before any
// handler runs: it writes a plain text for a request that is not well-formed,
// and nothing at all for one that does not arrive in time.
type conn struct {
	net.Conn             // what was said, after TLS if there is any
	raw         net.Conn // the connection itself
	certificate *Certificate
	remote      *Server // nil for a client on this machine, with certificate
	limiter     *connLimiter
	connState
	ending
	deadlines
	busy    atomic.Bool // a handler runs
	partial atomic.Bool // bytes have come since the last handler ended
	refused atomic.Bool // the last answer of this connection has been written
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the conn that a request came by; nil in tests without one.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

func (c *conn) handling(now bool) {
	c.busy.Store(now)
	c.partial.Store(false)
}

// Read notices a request that stopped on its way, and the end of the client's side.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.hungUp.Load() {
		return 0, errHungUp
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.partial.Store(true)
	}
	if err != nil && c.certificate != nil {
		err = c.endHandshake(err)
	}
	switch {
	case err == nil:
	case !errors.Is(err, os.ErrDeadlineExceeded):
		c.peer.Store(true)
	case c.hungUp.Load():
		return n, errHungUp
	case c.partial.Load() && !c.busy.Load():
		c.partial.Store(false)
		// net/http may take what came for a whole line, and answer that too.
		if !c.refused.Swap(true) {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = c.Conn.Write(rawResponse(tooSlow))
		}
	}
	return n, err
}

// plainTextError ends the head of every refusal that net/http writes by itself, but
// for that of an Expect header, which has no body. No handler of ours writes one
// like it.
var plainTextError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

func isPlainTextError(p []byte) bool {
	return len(p) <= 512 && bytes.HasPrefix(p, []byte("HTTP/1.")) &&
		(bytes.Contains(p, plainTextError) || statusOf(p) == http.StatusExpectationFailed)
}

// statusOf is the status of a response that begins with p; 0 if there is none.
func statusOf(p []byte) int {
	_, rest, _ := bytes.Cut(p, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil {
		return 0
	}
	return status
}

// Write puts our body in the place of net/http's. Nothing is written after a
// refusal, which is the end of the connection.
func (c *conn) Write(p []byte) (int, error) {
	if c.refused.Load() {
		return len(p), nil
	}
	if !isPlainTextError(p) {
		return c.Conn.Write(p)
	}
	c.refused.Store(true)
	if _, err := c.Conn.Write(rawResponse(jsonErrorFor(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// jsonErrorFor is our refusal for one that net/http has written.
func jsonErrorFor(written []byte) *rpc.Error {
	if bytes.Contains(written, []byte("Host header")) {
		return badHost
	}
	status := statusOf(written)
	if status == 0 {
		return malformedHTTP
	}
	for _, r := range []*rpc.Error{longHead, unknownCoding, unknownExpect, unknownVersion} {
		if r.Status == status {
			return r
		}
	}
	return new(malformedHTTP.With(status))
}

// What else net/http refuses by itself.
var (
	longHead = apiError(http.StatusRequestHeaderFieldsTooLarge, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		fmt.Sprintf("the request line and the headers have more than %d bytes", maxHeader), "Send fewer headers, or shorter ones.")
	unknownCoding = apiError(http.StatusNotImplemented, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the only Transfer-Encoding that is understood is chunked", "Send a Content-Length, or the body in chunks.")
	unknownExpect = apiError(http.StatusExpectationFailed, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the only Expect that is understood is 100-continue", "Leave out the Expect header.")
	unknownVersion = apiError(http.StatusHTTPVersionNotSupported, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"HTTP/1.0 and 1.1 alone are understood", "Speak HTTP/1.1.")
)

// rawResponse is a whole HTTP response that ends the connection, with the
// headers that every answer has.
func rawResponse(r *rpc.Error) []byte {
	body := jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: jsonrpc.NullID, Error: r.Err})
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nX-Request-Id: %s\r\nCache-Control: no-store\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		r.Status, http.StatusText(r.Status), uuid.NewString(), len(body))
	return append([]byte(head), body...)
}
