package httpd

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lingerTime is how long a client may go on sending, and keep its side of the connection
	// open, once the server has ended it.
	lingerTime = 2 * time.Second
	// lingerCheck is the time between two looks at how much of an answer the client has.
	lingerCheck = 100 * time.Millisecond
)

// ending is the part of a conn that ends it. After a plain close by the server, a client that
// never closes its own side keeps its port, and 28,000 such clients leave no port for others.
// Only a reset frees the port then. So the server closes its half first (FIN), drops what still
// comes, and resets the connection once the client has closed its side, or lingerTime is over.
// An answer that the client's system has not received whole delays the reset as long as
// the client takes more of it, and at most Options.IdleTimeout after it took the last.
type ending struct {
	mu      sync.Mutex  // guards changes of hungUp, and the deadlines
	hungUp  atomic.Bool // net/http reads no more of the connection
	reading sync.Mutex  // held by Read
	peer    atomic.Bool // Read saw the end of the client's side

	endOnce, finishOnce sync.Once
	finished            chan struct{} // closed once the descriptor is
}

// errHungUp is an error at which net/http ends the connection and writes nothing.
var errHungUp = &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}

// hangUp makes all reads of net/http fail from now on, so that it ends the connection after
// the answer under way. What the client still sends is dropped then (see linger).
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hungUp.Swap(true) {
		_ = c.Conn.SetReadDeadline(time.Now())
	}
}

// CloseWrite is the last call of net/http but for Close, which follows after a pause.
func (c *conn) CloseWrite() error { return c.Close() }

// Close ends the connection and returns at once. The client still gets what was written.
func (c *conn) Close() error {
	c.hangUp()
	c.endOnce.Do(func() {
		if _, all := delivery(c.raw); all && c.peer.Load() || !c.limiter.startLinger(c) {
			c.finish(false)
		}
	})
	return nil
}

// linger closes the server's half, and finishes once that takes nothing from the client.
func (c *conn) linger() {
	c.reading.Lock()                                // the last Read of net/http has returned
	for _, one := range []net.Conn{c.Conn, c.raw} { // TLS says that it ends, and then the connection does
		if half, ok := one.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	c.reading.Unlock()

	dropped := &io.LimitedReader{R: c.raw, N: maxDiscard}
	start, over := time.Now(), false // over: nothing more is read
	acked, progress := uint64(0), start
	for {
		if over {
			c.waitFinished(lingerCheck)
		} else {
			_ = c.raw.SetReadDeadline(time.Now().Add(lingerCheck))
			_, err := io.Copy(io.Discard, dropped)
			over = !errors.Is(err, os.ErrDeadlineExceeded)
		}
		now := time.Now()
		n, all := delivery(c.raw)
		if n > acked {
			acked, progress = n, now
		}
		done := now.Sub(progress) >= c.limiter.stalled
		if all {
			done = over || now.Sub(start) >= lingerTime || c.limiter.stopping.Load()
		}
		if done {
			c.finish(resetKeepsAnswers)
			return
		}
	}
}

func (c *conn) waitFinished(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.finished:
	}
}

// reset ends the connection at once: what the client has not received is lost.
func (c *conn) reset() { c.finish(true) }

// finish closes the descriptor, with a reset or without. It may be called again.
func (c *conn) finish(reset bool) {
	c.finishOnce.Do(func() {
		c.limiter.forget(c)
		if tcp, ok := c.raw.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = c.raw.Close()
		c.stopTimer()
		close(c.finished)
	})
}
