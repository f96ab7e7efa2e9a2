package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"nexus.internal/protocol/format"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a server of NATS in this process.
func broker(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("it does not start")
	}
	return s
}

// machine is a tunnel over a client of its own.
func machine(t *testing.T, s *server.Server) *Tunnel {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	tunnel := New(nc, format.NewLater(nil))
	tunnel.silence, tunnel.dialing = time.Minute, time.Minute // on a busy machine
	t.Cleanup(func() {
		tunnel.Close()
		closed := make(chan struct{})
		nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
		nc.Close()
		<-closed
	})
	return tunnel
}

// pair are the two sides of a connection.
func pair(t *testing.T) (dialled, accepted *Conn) {
	t.Helper()
	s := broker(t)
	a, b := machine(t, s), machine(t, s)
	l, err := b.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dialled, err = a.Dial(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialled, c.(*Conn)
}

// HTTP goes over it as over TCP: many requests at once, bodies and streams both ways, a cancelled one.
func TestHTTP(t *testing.T) {
	s := broker(t)
	a, b := machine(t, s), machine(t, s)
	l, err := b.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	cancelled := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a server of HTTP/1 does not read on once it has answered
		_, _ = w.Write(body)
	})
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(cancelled)
	})
	h := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.Serve(l) })
	defer serving.Wait()
	defer h.Close()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.Dial(ctx, "b") }}}
	defer client.CloseIdleConnections()

	var requests sync.WaitGroup
	for i := range 20 {
		requests.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*100_000+i)
			response, err := client.Post("http://b/echo", "", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes came back as %d, %v", len(body), len(got), err)
			}
		})
	}
	requests.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://b/wait", nil)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cancel()
	<-cancelled
}

// What is written comes whole and in its order, and a reader that does not read holds the writer.
func TestOrderAndRoom(t *testing.T) {
	a, b := pair(t)
	sent := make([]byte, 20*window+17)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	if err := a.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Error(err)
	}
	n, err := a.Write(sent)
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() || n > window+2*chunk {
		t.Errorf("nobody reads, and %d bytes were written: %v", n, err)
	}
	if err := a.SetWriteDeadline(time.Time{}); err != nil {
		t.Error(err)
	}
	var written sync.WaitGroup
	written.Go(func() {
		for rest := sent[n:]; len(rest) > 0; {
			n, err := a.Write(rest[:min(len(rest), 1+rand.IntN(3*chunk))])
			if err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		a.Close()
	})
	got, err := io.ReadAll(b)
	written.Wait()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, ErrReset) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write to who has closed: %v", err)
	}
}

// What is read is told in large pieces: of a short question and its answer, no message says that they were.
func TestReadsAreToldSeldom(t *testing.T) {
	a, b := pair(t)
	hello := make([]byte, 5)
	for range 3 {
		for _, way := range [][2]*Conn{{a, b}, {b, a}} {
			if _, err := io.WriteString(way[0], "hello"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], hello); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []*Conn{a, b} {
		c.sending.Lock()
		if c.sent != 3 {
			t.Errorf("%d messages for three short texts", c.sent)
		}
		c.sending.Unlock()
	}
}

// Whatever goes wrong on the way ends the connection on both sides, in words.
func TestEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		harm func(a, b *Conn)
		want error
	}{
		"a lost message": {func(_, b *Conn) { b.sending.Lock(); b.sent++; b.sending.Unlock(); _, _ = b.Write([]byte("x")) }, ErrLost},
		"a forged one":   {func(a, _ *Conn) { _ = a.t.nc.Publish(a.own, []byte("d")) }, ErrLost},
		"more than agreed": {func(a, b *Conn) {
			for range window/chunk + 2 {
				_ = b.send(data, make([]byte, chunk))
			}
			<-a.over // before anything is read
		}, ErrLost},
		"the other's end": {func(_, b *Conn) { b.t.Close() }, ErrReset},
		"it is known to be gone": {func(a, b *Conn) {
			a.t.Break("another", 0, ErrAnew)
			b.t.Break("n", 0, ErrAnew)
			a.t.Break("n", 0, ErrSilent)
		}, ErrSilent},
		"its silence":                       {func(_, b *Conn) { b.heard.Unsubscribe(); b.sending.Lock() }, ErrSilent},
		"its close, as it was heard lately": {func(a, b *Conn) { a.t.Break("n", time.Hour, ErrAnew); b.Close() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			s := broker(t)
			m, n := machine(t, s), machine(t, s)
			m.silence, n.silence = time.Minute, time.Minute
			if name == "its silence" {
				m.silence = 300 * time.Millisecond
			}
			l, err := n.Listen("n")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a, err := m.Dial(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			b := c.(*Conn)
			tc.harm(a, b)
			if _, err = io.Copy(io.Discard, a); err == nil {
				err = io.EOF
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if name == "its silence" {
				b.sending.Unlock()
				b.fail(net.ErrClosed)
			} else if _, err := b.Read(make([]byte, 1)); err == nil {
				t.Error("the other side goes on")
			}
		})
	}
}

// A connection that cannot be had is an error at once.
func TestRefused(t *testing.T) {
	s := broker(t)
	a, b := machine(t, s), machine(t, s)
	if _, err := a.Dial(t.Context(), "nobody"); !errors.Is(err, nats.ErrNoResponders) || !strings.Contains(fmt.Sprint(err), "nobody") {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := b.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	for range maxWaiting {
		if _, err := a.Dial(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := a.Dial(t.Context(), "b"); err == nil {
		t.Errorf("one more waits: %v", c.LocalAddr())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	a.Close()
	if _, err := a.Dial(t.Context(), "b"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed tunnel: %v", err)
	}
	b.Close()
	if n := len(a.conns) + len(b.conns); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}
