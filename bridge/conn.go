package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"nexus.internal/protocol/jsonrpc"
)

// listener makes a conn of each connection.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn gives a JSON-RPC body to the refusals that net/http makes before any
// handler runs: it writes a plain text for a request that is not well-formed,
// and nothing at all for one that does not arrive in time.
type conn struct {
	net.Conn
	busy    atomic.Bool // a handler runs
	partial atomic.Bool // bytes have come since the last handler ended
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

// Read notices a request that stopped on its way.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.partial.Store(true)
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.partial.Load() && !c.busy.Load() {
		c.partial.Store(false)
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(plainRefusal(tooSlow))
	}
	return n, err
}

// ownRefusal ends the head of every refusal that net/http writes by itself. No
// handler of ours writes one like it.
var ownRefusal = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write puts our body in the place of net/http's.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) > 512 || !bytes.HasPrefix(p, []byte("HTTP/1.1 ")) || !bytes.Contains(p, ownRefusal) {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(plainRefusal(explainHTTP(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets net/http end a connection so that the peer still reads what
// was written.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// explainHTTP is our refusal for one that net/http has written.
func explainHTTP(written []byte) refusal {
	if bytes.Contains(written, []byte("Host header")) {
		return badHost
	}
	r := malformedHTTP
	var status int
	if _, err := fmt.Sscanf(string(written), "HTTP/1.1 %d", &status); err == nil {
		r.status = status
	}
	return r
}

// plainRefusal is a whole HTTP response that ends the connection.
func plainRefusal(r refusal) []byte {
	body := jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: jsonrpc.NullID, Error: r.err})
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		r.status, http.StatusText(r.status), len(body))
	return append([]byte(head), body...)
}
