package bridge_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
)

// peer is a client's side of a connection, which the test never closes by itself.
type peer struct {
	*net.TCPConn
	t *testing.T
}

// connect connects; a peer with a small buffer has room for little of an answer that it does not read.
func (r *rig) connect(t *testing.T, small bool) peer {
	t.Helper()
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) {
			if small {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
			}
		})
		return err
	}}
	conn, err := d.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return peer{conn.(*net.TCPConn), t}
}

func (p peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// freed reports whether the system ends the connection within the time, which frees its port
// though nobody has closed it.
func (p peer) freed(t *testing.T, within time.Duration) (freed bool) {
	t.Helper()
	raw, err := p.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(within)
	if failed := raw.Control(func(fd uintptr) {
		for left := within; left > 0; left = time.Until(end) {
			var n int
			if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(left.Milliseconds())+1); err == nil || err != unix.EINTR {
				freed = n == 1
				break
			}
		}
		if !freed || err != nil {
			return
		}
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			freed = info.State == unix.BPF_TCP_CLOSE
		}
	}); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return freed
}

// rest is all that can still be read.
func (p peer) rest(t *testing.T) string {
	t.Helper()
	if err := p.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(p)
	if err != nil {
		t.Errorf("after %d bytes: %v, want the end", len(all), err)
	}
	return string(all)
}

// A client that never closes its side does not keep its port, however the server ends the
// connection: 28,000 such clients once kept all others from connecting. What the server
// answered can be read even then.
func TestAttackClientsThatNeverClose(t *testing.T) {
	t.Parallel() // it is waiting
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.ReadTimeout, o.IdleTimeout = time.Second, time.Second })
	docs := "GET /docs HTTP/1.1\r\nConnection: close\r\nHost: " + r.addr + "\r\n\r\n"
	healthz := "GET /healthz HTTP/1.1\r\nHost: " + r.addr + "\r\n"
	tests := []struct {
		name, sent string
		status     string
		small      bool // and reads nothing
		half       bool // it closes its half
	}{
		{name: "silence"},
		{name: "silence in a request", sent: "POS", status: "408"},
		{name: "silence after an answer", sent: healthz + "\r\n", status: "200"},
		{name: "Connection: close", sent: healthz + "Connection: close\r\n\r\n", status: "200"},
		{name: "HTTP/1.0", sent: strings.Replace(healthz, "1.1", "1.0", 1) + "\r\n", status: "200"},
		{name: "no HTTP", sent: "hello\r\n\r\nhello", status: "400"},
		{name: "a long header", sent: "POST /rpc HTTP/1.1\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", status: "431"},
		{name: "a coding", sent: r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: gzip\r\n\r\n", status: "501"},
		{name: "an expectation", sent: r.head("POST /rpc HTTP/1.1") + "Expect: foo\r\n\r\n", status: "417"},
		{name: "refused before its body", sent: "POST /rpc HTTP/1.1\r\nHost: " + r.addr + "\r\nContent-Length: 50\r\n\r\n", status: "401"},
		{name: "refused in a large body", sent: "POST /rpc HTTP/1.1\r\nHost: " + r.addr + "\r\nContent-Length: 2000000\r\n\r\n{", status: "401"},
		{name: "an answer that is not read", sent: docs, small: true},
		{name: "an answer that is not read, half closed", sent: docs, small: true, half: true},
	}
	peers := make([]peer, len(tests)) // all of them wait at once
	for i, test := range tests {
		peers[i] = r.connect(t, test.small)
		peers[i].send(test.sent)
		if test.half {
			if err := peers[i].CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !peers[i].freed(t, patience) {
				t.Fatal("the port is kept")
			}
			if test.small {
				return
			}
			if got := peers[i].rest(t); test.status == "" && got != "" || test.status != "" && !strings.Contains(got, " "+test.status+" ") {
				t.Errorf("got %q, want status %q", got, test.status)
			}
		})
	}
}

// The same holds for a connection that gives way to another one, for one whose key ends, with a
// stream or without, and at the end of the server.
func TestAttackClientsThatNeverCloseAndMustGo(t *testing.T) {
	t.Parallel() // it is waiting
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.MaxUnauthenticated = 2 })
	oldest := r.connect(t, false)
	for range 3 { // the server has accepted the second once it closes the first
		r.connect(t, false)
	}
	if !oldest.freed(t, patience) {
		t.Error("a connection that gave way to another one keeps its port")
	}

	bearer, id := r.scoped(auth.ScopeRead, "")
	ask := func(line, bearer string) peer {
		p := r.connect(t, false)
		p.send(line + " HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: " + bearer + "\r\n\r\n")
		if err := p.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(p).ReadByte(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	idle, stream := ask("GET /readyz", bearer), ask("GET /events", bearer)
	if revoked, err := r.keys.Revoke(id); !revoked || err != nil {
		t.Fatal(err)
	}
	if !idle.freed(t, patience) || !stream.freed(t, patience) {
		t.Error("a connection of a revoked key keeps its port")
	}

	silent := r.connect(t, false)
	full := "Bearer " + r.key.Reveal()
	idle, stream = ask("GET /readyz", full), ask("GET /events", full)
	r.stop()
	<-r.served
	for name, p := range map[string]peer{"idle": idle, "streaming": stream, "silent": silent} {
		if !p.freed(t, patience) {
			t.Errorf("a connection that was %s at the end of the server keeps its port", name)
		}
	}
}

// A client that reads slowly gets its whole answer, and keeps its connection until then.
func TestSlowReaderGetsItsAnswer(t *testing.T) {
	t.Parallel() // it is waiting
	r := rigged(t, nil)
	p := r.connect(t, true)
	p.send("GET /docs HTTP/1.1\r\nConnection: close\r\nHost: " + r.addr + "\r\n\r\n")
	if p.freed(t, 3*time.Second) {
		t.Error("the connection was reset before the answer was read")
	}
	in := bufio.NewReader(p)
	if response, body := readResponse(t, in); response.StatusCode != 200 || len(body) < 16<<10 || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
		t.Errorf("HTTP %d, %d bytes", response.StatusCode, len(body))
	}
	if !p.freed(t, patience) {
		t.Error("the port is kept")
	}
}
