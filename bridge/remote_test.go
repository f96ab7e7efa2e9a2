package bridge_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/certtest"
	"nexus.internal/bridge/httpd"
)

// remoteRig is a rig that clients on other machines reach, too.
type remoteRig struct {
	*rig
	authority *certtest.Authority
	at        string // HOST:PORT
	pool      *x509.CertPool
	settings  bridge.Settings
}

func riggedRemote(t *testing.T, change func(*bridge.Options)) *remoteRig {
	t.Helper()
	r := &remoteRig{authority: certtest.New(t)}
	r.rig = rigged(t, func(_ *rig, o *bridge.Options) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r.at = ln.Addr().String()
		o.Remote, o.Certificate = ln, r.certificate(t, "127.0.0.1", "one.example")
		if change != nil {
			change(o)
		}
		r.settings = o.Settings
	})
	text, err := os.ReadFile(r.authority.File)
	if err != nil {
		t.Fatal(err)
	}
	r.pool = x509.NewCertPool()
	r.pool.AppendCertsFromPEM(text)
	return r
}

// certificate is one for these hosts.
func (r *remoteRig) certificate(t testing.TB, hosts ...string) *httpd.Certificate {
	c, err := httpd.ReadCertificate(r.authority.Files(t, nil, hosts...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shake is a connection to the server for one of its names.
func (r *remoteRig) shake(name string) *tls.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.at, &tls.Config{RootCAs: r.pool, ServerName: name})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// say sends a request and returns its answer; headers are whole lines.
func say(t *testing.T, conn net.Conn, line, body string, headers ...string) (status int, answer string) {
	t.Helper()
	text := line + " HTTP/1.1\r\n"
	for _, header := range headers {
		text += header + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", text, len(body), body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

const listAgents = `{"jsonrpc":"2.0","method":"list_agents","id":1}`

// What a client on another machine gets is what one on this machine gets, by a key and by no less, at the names of the certificate.
func TestRemote(t *testing.T) {
	r := riggedRemote(t, nil)
	key := "Authorization: Bearer " + r.key.Reveal()
	signed := strings.TrimSuffix(listAgents, "}") + `,"auth":{"timestamp":1,"signature":"x"}}`
	for _, tc := range []struct {
		name, line, body string
		headers          []string
		status           int
		want             string
	}{
		{"a call", "POST /rpc", listAgents, []string{"Host: " + r.at, key}, 200, `"agents":[]`},
		{"another name and port", "POST /rpc", listAgents, []string{"Host: One.example:1", key}, 200, `"agents":[]`},
		{"the port of https", "POST /rpc", listAgents, []string{"Host: one.example", key}, 200, `"agents":[]`},
		{"a page of the server itself", "POST /rpc", listAgents, []string{"Host: one.example", "Origin: https://one.example", key}, 200, `"agents":[]`},
		{"a page without TLS", "POST /rpc", listAgents, []string{"Host: one.example", "Origin: http://one.example", key}, 403, "FORBIDDEN_ORIGIN"},
		{"another page", "POST /rpc", listAgents, []string{"Host: one.example", "Origin: https://two.example", key}, 403, "FORBIDDEN_ORIGIN"},
		{"a name that the certificate has not", "POST /rpc", listAgents, []string{"Host: " + r.addr[:4] + "0.0.2:8765", key}, 403, "FORBIDDEN_HOST"},
		{"the name of this machine", "POST /rpc", listAgents, []string{"Host: localhost", key}, 403, "FORBIDDEN_HOST"},
		{"no host", "POST /rpc", listAgents, []string{"Host: ", key}, 403, "FORBIDDEN_HOST"},
		{"no key", "POST /rpc", listAgents, []string{"Host: " + r.at}, 401, "AUTHENTICATION_REQUIRED"},
		{"a signature in its place", "POST /rpc", signed, []string{"Host: " + r.at}, 401, "no API key was sent"},
		{"a wrong key", "POST /rpc", listAgents, []string{"Host: " + r.at, "Authorization: Bearer " + auth.Generate().Reveal()}, 403, "AUTHENTICATION_FAILED"},
		{"the state without a key", "GET /readyz", "", []string{"Host: " + r.at}, 401, "AUTHENTICATION_REQUIRED"},
		{"figures without a key", "GET /metrics", "", []string{"Host: " + r.at}, 401, "AUTHENTICATION_REQUIRED"},
		{"events without a key", "GET /events", "", []string{"Host: " + r.at}, 401, "AUTHENTICATION_REQUIRED"},
		{"life", "GET /healthz", "", []string{"Host: " + r.at}, 200, `"service":"nexus"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := say(t, r.shake("one.example"), tc.line, tc.body, tc.headers...)
			if status != tc.status || !strings.Contains(answer, tc.want) {
				t.Errorf("got %d, %s, want %d, %s", status, answer, tc.status, tc.want)
			}
		})
	}
	if status, answer := say(t, r.dial(), "POST /rpc", listAgents, "Host: one.example", key); status != 403 {
		t.Errorf("on this machine, a name of the certificate is good: %d, %s", status, answer)
	}
}

// A code lets a browser on another machine in, and the address that goes with it is the one at which the server was asked.
func TestRemoteCode(t *testing.T) {
	r := riggedRemote(t, nil)
	_, answer := say(t, r.shake("one.example"), "POST /rpc", `{"jsonrpc":"2.0","method":"create_page_code","id":1}`,
		"Host: one.example:8443", "Authorization: Bearer "+r.key.Reveal())
	code := gjson.Get(answer, "result.code").Str
	if got, want := gjson.Get(answer, "result.url").Str, "https://one.example:8443/#code="+code; got != want {
		t.Errorf("the address is %s, want %s", got, want)
	}
	if status, answer := say(t, r.shake("one.example"), "POST /page/key", "", "Host: one.example", "Authorization: Code "+code); status != 200 || gjson.Get(answer, "key").Str != r.key.Reveal() {
		t.Errorf("the code gives %d, %s", status, answer)
	}
}

// The proof is of the certificate that the connection began with: passed on by a server with another one, it is wrong.
func TestRemoteProof(t *testing.T) {
	r := riggedRemote(t, nil)
	proof := func(conn *tls.Conn, host string) (proof, address string) {
		nonce := auth.Nonce()
		_, answer := say(t, conn, "GET /healthz?challenge="+nonce+"&key="+r.key.ID(), "", "Host: "+host)
		proof, address = gjson.Get(answer, "proof").Str, auth.CertificateAddress(conn.ConnectionState().PeerCertificates[0].Raw)
		if !r.key.Proves(nonce, address, proof) {
			t.Errorf("%q does not prove the key for %s", proof, address)
		}
		if r.key.Proves(nonce, r.at, proof) {
			t.Error("it is the proof of an address")
		}
		return proof, address
	}
	before := r.shake("one.example")
	_, first := proof(before, "one.example")
	next := r.settings
	next.Certificate = r.certificate(t, "two.example")
	r.server.Reload(next)
	if _, again := proof(before, "one.example"); again != first {
		t.Error("a connection has another certificate than it began with")
	}
	if _, second := proof(r.shake("two.example"), "two.example"); second == first {
		t.Error("the certificate is still the one from before")
	}
	if status, _ := say(t, r.shake("two.example"), "GET /healthz", "", "Host: one.example"); status != 403 {
		t.Errorf("the host of the certificate from before is still good: %d", status)
	}
}

// A client without TLS is told so, one with an old TLS is refused, and neither is one of those who show no key: they have no request.
func TestRemoteIsTLSAlone(t *testing.T) {
	r := riggedRemote(t, nil)
	conn, err := net.Dial("tcp", r.at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if status, answer := say(t, conn, "POST /rpc", listAgents, "Host: "+r.at); status != 400 || !strings.Contains(answer, "Use https://") {
		t.Errorf("without TLS, the answer is %d, %s", status, answer)
	}
	if old, err := tls.Dial("tcp", r.at, &tls.Config{RootCAs: r.pool, ServerName: "one.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		old.Close()
		t.Error("TLS 1.1 is spoken")
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := tls.Dial("tcp", r.at, &tls.Config{RootCAs: r.pool, ServerName: "one.example", MinVersion: version, MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatalf("TLS %x: %v", version, err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("the protocol is %q", got)
		}
		conn.Close()
	}
}

// strangers are connections of clients on other machines that never end their handshakes.
func (r *remoteRig) strangers(n int) (all []net.Conn) {
	r.t.Helper()
	for range n {
		conn, err := net.Dial("tcp", r.at)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte{22, 3, 1, 2, 0}); err != nil { // the head of the first message
			r.t.Fatal(err)
		}
		all = append(all, conn)
	}
	return all
}

// untilEnded waits until the server has ended a connection, on which it says nothing.
func untilEnded(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of a connection come %d bytes, %v, want its end", n, err)
	}
}

// A client that does not end its handshake has the time of a request.
func TestRemoteHandshakeTakesTime(t *testing.T) {
	r := riggedRemote(t, func(o *bridge.Options) { o.ReadTimeout = 100 * time.Millisecond })
	untilEnded(t, r.strangers(1)[0])
}

// Clients on other machines that show no key have half as many connections as those on this machine, of which they displace none.
func TestRemoteStrangers(t *testing.T) {
	r := riggedRemote(t, func(o *bridge.Options) { o.MaxUnauthenticated = 4 })
	here := r.dial()
	defer here.Close()
	if status, _ := say(t, here, "GET /healthz", "", "Host: "+r.addr); status != 200 { // it is accepted, and goes on
		t.Fatalf("a client on this machine gets %d", status)
	}
	all := r.strangers(6)
	for _, conn := range all[:4] {
		untilEnded(t, conn)
	}
	for _, conn := range all[4:] {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one within the bound has ended: %v", err)
		}
	}
	if status, _ := say(t, here, "GET /healthz", "", "Host: "+r.addr); status != 200 {
		t.Errorf("after strangers on other machines, the client gets %d", status)
	}
}

// A certificate is refused for what would keep each client from accepting it, and for a key that others may know.
func TestReadCertificate(t *testing.T) {
	authority := certtest.New(t)
	good, key := authority.Files(t, nil, "one.example")
	_, other := authority.Files(t, nil, "one.example")
	nameless, namelessKey := authority.Files(t, nil)
	client, clientKey := authority.Files(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "one.example")
	_, open := authority.Files(t, nil, "one.example")
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ cert, key, want string }{
		{good, other, "private key does not match"},
		{nameless, namelessKey, "names no host"},
		{client, clientKey, "is not for servers"},
		{good, open, "run chmod 600 " + open},
		{good, t.TempDir(), "read the key"},
		{good + "x", key, "no such file"},
		{key, key, "may have been switched"},
	} {
		if _, err := httpd.ReadCertificate(tc.cert, tc.key); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, %s: %v, want %q", tc.cert, tc.key, err, tc.want)
		}
	}
	link := t.TempDir() + "/link"
	if err := os.Symlink(key, link); err != nil {
		t.Fatal(err)
	}
	c, err := httpd.ReadCertificate(good, link)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for at, want := range map[time.Time]string{now: "ends at", now.Add(-48 * time.Hour): "is valid from", now.Add(48 * time.Hour): "ended at"} {
		if got := c.Warning(at); !strings.Contains(got, want) {
			t.Errorf("at %v the warning is %q, want %q", at, got, want)
		}
	}
}
