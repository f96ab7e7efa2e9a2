package modelgate

import (
	"container/list"
	"context"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// maxConnections is how many connections a program may have. The broker takes as many.
	maxConnections = 48
	// maxUnauthenticated is how many connections there may be that have not shown the token, if that is not more than a
	// quarter of the files that we may open; the oldest is closed for another one. Whoever is on the machine can make
	// them, and a program shows its token at once. Thousands in a second do not close it before that is read.
	maxUnauthenticated = 256
	// dropTime is how long what still comes is dropped once a request is turned away.
	dropTime = 2 * time.Second
)

// resetKeepsAnswers says that a client still reads what its system has received before a reset (tcp_recvmsg in
// net/ipv4/tcp.c of Linux).
const resetKeepsAnswers = runtime.GOOS == "linux"

// connLimiter is a listener that bounds connections by what they have shown: those without the token, and those of the
// program, which displace each other in no way. It is safe for concurrent use.
type connLimiter struct {
	net.Listener
	most int // of those without the token

	mu              sync.Mutex // guards what follows, and the state of each conn
	unauthenticated list.List  // of *conn, the oldest first
	authenticated   int
}

// conn is one connection.
type conn struct {
	net.Conn
	limiter *connLimiter

	at            *list.Element // in unauthenticated; nil once it has shown the token, or is closed
	authenticated bool          // it counts as the program's
	closed        bool
}

func newConnLimiter(ln net.Listener) *connLimiter {
	l := &connLimiter{Listener: ln, most: maxUnauthenticated}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil { // an agent's limits may bound it
		l.most = int(max(1, min(maxUnauthenticated, files.Cur/4)))
	}
	return l
}

// Accept implements [net.Listener].
func (l *connLimiter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: c, limiter: l}
	l.mu.Lock()
	one.at = l.unauthenticated.PushBack(one)
	var oldest *conn
	if l.unauthenticated.Len() > l.most {
		oldest, _ = l.unauthenticated.Front().Value.(*conn)
		oldest.leave()
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.reset() // its goroutine sees that, and ends
	}
	return one, nil
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// authenticate notes that the connection of a request has shown the token. It reports whether the connection may stay:
// it may not if the program has too many.
func authenticate(ctx context.Context) bool {
	c, _ := ctx.Value(connKey{}).(*conn)
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	switch {
	case c.authenticated:
		return true
	case c.closed || c.limiter.authenticated >= maxConnections:
		return false
	}
	c.leave()
	c.authenticated = true
	c.limiter.authenticated++
	return true
}

// leave takes a connection out of the count that it is in. The limiter's mutex is held.
func (c *conn) leave() {
	if c.at != nil {
		c.limiter.unauthenticated.Remove(c.at)
		c.at = nil
	}
	if c.authenticated {
		c.limiter.authenticated--
		c.authenticated = false
	}
}

// Close implements [net.Conn]. A connection that has not shown the token is reset behind the answer: a client that does
// not close its side keeps its port else, and with all ports of the machine it would keep the program out.
func (c *conn) Close() error {
	c.limiter.mu.Lock()
	known := c.authenticated
	c.closed = true
	c.leave()
	c.limiter.mu.Unlock()
	if known || !resetKeepsAnswers {
		return c.Conn.Close()
	}
	_ = c.CloseWrite()
	return c.reset()
}

// CloseWrite is called by net/http.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// reset ends the connection at once, on both sides.
func (c *conn) reset() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.Conn.Close()
}
