package httpd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/httpd"
)

// linger is how long a connection stays that the server has ended and the client has not.
const linger = 2 * time.Second

// pipes is a listener of one connection, which counts the deadlines that it is given.
type pipes struct {
	conns chan net.Conn
	sets  *atomic.Int64
}

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return counted{c, p.sets}, nil
}
func (p pipes) Close() error { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// counted counts the deadlines to come.
type counted struct {
	net.Conn
	sets *atomic.Int64
}

func (c counted) SetReadDeadline(t time.Time) error {
	if t.After(time.Now()) {
		c.sets.Add(1)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c counted) SetWriteDeadline(t time.Time) error {
	if t.After(time.Now()) {
		c.sets.Add(1)
	}
	return c.Conn.SetWriteDeadline(t)
}

// served runs test with a connection to a server with timeouts of 10 s for a request, 60 s
// between requests and 5 s for an answer, whose handler answers with the body.
func served(t *testing.T, test func(t *testing.T, c net.Conn, sets *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		p := pipes{conns: make(chan net.Conn, 1), sets: new(atomic.Int64)}
		p.conns <- theirs
		server := &http.Server{ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, ConnContext: httpd.ConnContext, Handler: httpd.Handling(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Second))
			_, _ = w.Write(body)
		})}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(httpd.Wrap(p)) }()
		defer func() {
			_ = ours.Close()
			close(p.conns)
			_ = server.Close()
			<-done
		}()
		test(t, ours, p.sets)
	})
}

func ask(t *testing.T, c net.Conn, from *bufio.Reader) {
	t.Helper()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "hi" {
		t.Fatal(string(body), err)
	}
}

// A request sets no deadline of the connection, each of which could wake a thread; the
// deadlines hold all the same, each for as long as it was moved last.
func TestDeadlines(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		served(t, func(t *testing.T, c net.Conn, sets *atomic.Int64) {
			from, begun := bufio.NewReader(c), time.Now()
			ask(t, c, from)
			for range 20 { // over several times of each timeout
				<-time.After(50 * time.Second)
				ask(t, c, from)
			}
			if n := sets.Load(); n != 0 {
				t.Errorf("%d deadlines were set", n)
			}
			if _, err := from.ReadByte(); err != io.EOF || time.Since(begun) != (1000+60)*time.Second+linger {
				t.Errorf("idle: %v after %s, want the end 60 s after the last answer", err, time.Since(begun))
			}
		})
	})
	t.Run("half a request", func(t *testing.T) {
		served(t, func(t *testing.T, c net.Conn, _ *atomic.Int64) {
			from := bufio.NewReader(c)
			ask(t, c, from)
			begun := time.Now()
			<-time.After(30 * time.Second)
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\n")
			text, err := io.ReadAll(from)
			if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") || time.Since(begun) != 40*time.Second+linger {
				t.Errorf("%v after %s, want a 408 after 40 s: %s", err, time.Since(begun), text)
			}
		})
	})
	t.Run("an answer that is not read", func(t *testing.T) {
		served(t, func(t *testing.T, c net.Conn, _ *atomic.Int64) {
			const size = 100_000 // more than net/http buffers
			begun := time.Now()
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
			<-time.After(5 * time.Second)
			synctest.Wait()
			if n, err := io.Copy(io.Discard, c); n > size/2 || time.Since(begun) > 10*time.Second {
				t.Errorf("%d bytes were still to be had, %v after %s", n, err, time.Since(begun))
			}
		})
	})
}
