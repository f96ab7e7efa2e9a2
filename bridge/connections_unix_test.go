//go:build unix

package bridge_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// Ten thousand connections that say nothing, or begin a request and stop, do not
// keep a request with a key from being answered: neither where there is room for
// all of them, nor where the oldest must go.
func TestAttackIdleConnections(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := int(min(10_000, files.Cur/2-200)) // both ends of each are this process's
	for name, most := range map[string]int{"with room for all": n + 10, "with room for few": 100} {
		t.Run(name, func(t *testing.T) { besieged(t, n, most) })
	}
}

func besieged(t *testing.T, n, most int) {
	r := rigged(t, func(_ *rig, o *bridge.Options) {
		o.MaxUnauthenticated = most
		o.ReadTimeout, o.IdleTimeout = time.Hour, time.Hour // however long the strangers take to come
	})
	known := r.dial() // older than all of them, and with a key
	in := bufio.NewReader(known)
	ask := func() {
		t.Helper()
		if err := known.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(known, withLength(r.head("POST /rpc HTTP/1.1"), list)); err != nil {
			t.Fatal(err)
		}
		if response, body := readResponse(t, in); response.StatusCode != 200 {
			t.Fatalf("HTTP %d %s", response.StatusCode, body)
		}
	}
	ask()
	unauthenticated := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range unauthenticated {
			conn.Close()
		}
	}()
	for i := range n {
		conn, err := net.DialTimeout("tcp", r.addr, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		unauthenticated = append(unauthenticated, conn)
		if i%3 == 0 {
			_, _ = io.WriteString(conn, "POST /rpc HTTP/1.1\r\nHost: ") // it may be closed already
		}
	}
	ask()
	start := time.Now()
	r.works()
	t.Logf("%d idle connections, %d kept: a new one with a key answered in %s", n, most, time.Since(start))
	wait := 100 * time.Millisecond
	if most < n {
		wait = patience
	}
	if err := unauthenticated[0].SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	_, err := unauthenticated[0].Read(make([]byte, 1))
	if kept := errors.Is(err, os.ErrDeadlineExceeded); kept != (most >= n) {
		t.Errorf("the oldest of the idle: %v", err)
	}
	last := unauthenticated[n-1]
	if _, err := io.WriteString(last, strings.TrimPrefix(withLength(r.head("POST /rpc HTTP/1.1"), list), prefixOf(n-1))); err != nil {
		t.Fatal(err)
	}
	if response, body := readResponse(t, bufio.NewReader(last)); response.StatusCode != 200 {
		t.Errorf("the newest of the idle, once it speaks: HTTP %d %s", response.StatusCode, body)
	}
}

// prefixOf is what the stranger of that number has sent already.
func prefixOf(i int) string {
	if i%3 == 0 {
		return "POST /rpc HTTP/1.1\r\nHost: "
	}
	return ""
}

// kept asks by a connection of its own, which it keeps.
func (r *rig) kept(bearer, line string) net.Conn {
	r.t.Helper()
	conn := r.dial()
	if _, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: "+bearer+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode >= 500 {
		r.t.Fatalf("%s: %+v, %v", line, response, err)
	}
	return conn
}

// ended reports whether the server closes a connection within the time.
func ended(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// A key that is not good for everything cannot take all connections, whether what it
// asks for is granted or not: there are so many for all such keys, and the one that has
// the most loses one.
func TestAttackConnectionsOfAScopedKey(t *testing.T) {
	const most = 8
	for _, line := range []string{"GET /readyz", "GET /agent/a/events", "GET /nowhere"} {
		t.Run(line, func(t *testing.T) {
			r := rigged(t, func(_ *rig, o *bridge.Options) { o.MaxUnauthenticated = most })
			r.create("a")
			greedy, _ := r.scoped(auth.ScopeAgent, "a")
			if line == "GET /readyz" {
				greedy, _ = r.scoped(auth.ScopeRead, "")
			}
			modest, _ := r.scoped(auth.ScopeRead, "")
			full, other := r.kept("Bearer "+r.key.Reveal(), "GET /readyz"), r.kept(modest, "GET /readyz")
			conns := make([]net.Conn, 0, 4*most)
			for range 4 * most {
				conns = append(conns, r.kept(greedy, line))
			}
			r.works()
			for name, conn := range map[string]net.Conn{"the full key": full, "another scoped key": other} {
				if ended(t, conn, 100*time.Millisecond) {
					t.Errorf("the connection of %s was closed", name)
				}
			}
			left := 0
			for _, conn := range conns {
				if !ended(t, conn, 100*time.Millisecond) {
					left++
				}
			}
			if left != most-1 {
				t.Errorf("of %d connections %d are left", len(conns), left)
			}
		})
	}
}

// Of the connections of one key, one that waits for an answer is not the first to go.
func TestIdleConnectionsGoFirst(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.MaxUnauthenticated = 8 })
	bearer, _ := r.scoped(auth.ScopeRead, "")
	busy := r.kept(bearer, "GET /events")
	for range 20 {
		r.kept(bearer, "GET /readyz")
	}
	if ended(t, busy, 100*time.Millisecond) {
		t.Error("an event stream was closed for connections that say nothing")
	}
}

// A connection does not outlive the key that it showed, however that ends; but what is
// under way is answered first.
func TestAttackConnectionOfAnEndedKey(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		select {
		case <-c.Aborted():
			c.Finish(p, "")
		case <-c.Gone():
		}
	}))
	r.create("a")
	agents, id := r.scoped(auth.ScopeAgent, "a")
	idle := r.kept(agents, "GET /agent/a/none")
	stream := r.kept(agents, "GET /agent/a/events")
	busy := r.dial()
	body := `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"x","request_id":"r"}}`
	if _, err := io.WriteString(busy, withLength("POST /agent/a HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: "+agents+"\r\n", body)); err != nil {
		t.Fatal(err)
	}
	for r.sup.Agents()[0].State != supervisor.Busy {
		runtime.Gosched()
	}
	fulls := r.kept("Bearer "+r.key.Reveal(), "GET /readyz")
	if revoked, err := r.keys.Revoke(id); !revoked || err != nil {
		t.Fatal(err)
	}
	if !ended(t, idle, patience) || !ended(t, stream, patience) {
		t.Error("the connection of a revoked key was kept")
	}
	if ended(t, fulls, 100*time.Millisecond) {
		t.Error("another key's connection was closed too")
	}
	r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"cancel","params":{"request_id":"r"}}`)
	in := bufio.NewReader(busy)
	if response, answer := readResponse(t, in); response.StatusCode != 200 {
		t.Errorf("what was under way: HTTP %d %s", response.StatusCode, answer)
	}
	if !ended(t, busy, patience) {
		t.Error("the connection of a revoked key was kept after its answer")
	}
	fulls = r.kept("Bearer "+r.key.Reveal(), "GET /readyz")
	if _, err := r.keys.Rotate(0); err != nil {
		t.Fatal(err)
	}
	if !ended(t, fulls, patience) {
		t.Error("the connection of a full key that was replaced was kept")
	}
}

// Where no more files can be opened, that is said of a key that cannot be made. One
// that is revoked or replaced ends all the same.
func TestKeysWithoutFiles(t *testing.T) {
	r := rigged(t, nil)
	_, id := r.scoped(auth.ScopeRead, "")
	conn := r.dial()
	in := bufio.NewReader(conn)
	ask := func(method, params string) string {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		if _, err := io.WriteString(conn, withLength(r.head("POST /rpc HTTP/1.1"), body)); err != nil {
			t.Fatal(err)
		}
		_, answer := readResponse(t, in)
		return answer
	}
	ask("list_keys", "{}")
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	few := files
	few.Cur = 100
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
			t.Error(err)
		}
	}()
	var held []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		held = append(held, f)
	}
	defer func() {
		for _, f := range held {
			f.Close()
		}
	}()
	for _, c := range []struct{ method, params, kind string }{
		{"create_key", `{"scope":"read"}`, "TOO_MANY_FILES"},
		{"revoke_key", `{"key_id":"` + id + `"}`, "NOT_RECORDED"},
		{"rotate_key", "{}", "NOT_RECORDED"},
	} {
		if answer := ask(c.method, c.params); gjson.Get(answer, "error.data.type").Str != c.kind {
			t.Errorf("%s: %s", c.method, answer)
		}
	}
	if left := r.keys.List(); len(left) != 0 {
		t.Errorf("the keys are %+v", left)
	}
	if _, _, ok := r.keys.Check(r.key.Reveal()); ok {
		t.Error("the full key is good after its rotation")
	}
}

// A key counts for the request that it came with, and for no other of its connection.
func TestAttackWithoutKeyBehindOneWithAKey(t *testing.T) {
	r := rigged(t, nil)
	conn := r.dial()
	in := bufio.NewReader(conn)
	without := "POST /rpc HTTP/1.1\r\nHost: " + r.addr + "\r\n"
	for i, request := range []string{r.head("POST /rpc HTTP/1.1"), without, r.head("POST /rpc HTTP/1.1"), without} {
		if _, err := io.WriteString(conn, withLength(request, list)); err != nil {
			t.Fatal(err)
		}
		if response, body := readResponse(t, in); response.StatusCode != []int{200, 401}[i%2] {
			t.Errorf("request %d: HTTP %d %s", i, response.StatusCode, body)
		}
	}
}

// starvedListener accepts its first connections for an error, as the system does while it
// cannot watch their descriptors.
type starvedListener struct {
	net.Listener
	failures atomic.Int64
}

func (l *starvedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.failures.Add(-1) >= 0 {
		return nil, errors.Join(c.Close(), &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("epoll_ctl", syscall.ENOSPC)})
	}
	return c, err
}

// A program that uses up the watches of its user (fs.epoll.max_user_watches) once ended the
// server. A client now sees that its connection is closed, and a later one is served.
func TestServerSurvivesFailedAccept(t *testing.T) {
	starved := &starvedListener{}
	starved.failures.Store(2)
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		starved.Listener, r.listener = r.listener, starved
	})
	for range 2 {
		if n, err := r.dial().Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes, %v, want a closed connection", n, err)
		}
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{}); err != nil {
		t.Error(err)
	}
	if logs := r.logs.String(); !strings.Contains(logs, "no space left on device") || !strings.Contains(logs, "connections are accepted again") {
		t.Errorf("the log does not have the failure and its end:\n%s", logs)
	}
}
