package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"nexus.internal/child/egress"
)

// names is a resolver that gives the addresses of a name one after the other, and the last one
// from then on.
type names struct {
	mu    sync.Mutex
	known map[string][]string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.known[host]
	if len(known) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(known) > 1 {
		n.known[host] = known[1:]
	}
	return []netip.Addr{netip.MustParseAddr(known[0])}, nil
}

// gate starts a gate, and returns it and its address.
func gate(t *testing.T, known map[string][]string, hosts ...string) (*egress.Gate, string) {
	t.Helper()
	g := egress.NewGate(egress.GateOptions{Hosts: hosts, Resolver: &names{known: known}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := ln.(*net.TCPListener).File()
	at := ln.Addr().String()
	ln.Close()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { g.Serve(ctx, socket) })
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return g, at
}

// through makes a GET by a gate, and returns status and body.
func through(t *testing.T, gate, address string) (status int, body string, err error) {
	t.Helper()
	transport := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: gate}), DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a server of the test's
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(address)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// servers are one of http and one of https on the loopback, each with its port.
func servers(t *testing.T) (plain, secure string) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s proxy:%t", r.Method, r.Host, r.URL.Path, r.Header.Get("Proxy-Connection") != "" || r.URL.IsAbs())
	})
	http1, https1 := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(http1.Close)
	t.Cleanup(https1.Close)
	port := func(s *httptest.Server) string { return s.URL[strings.LastIndexByte(s.URL, ':')+1:] }
	return port(http1), port(https1)
}

func TestGateReachesNamedHosts(t *testing.T) {
	plain, secure := servers(t)
	known := map[string][]string{"web.test": {"127.0.0.1"}, "a.b.test": {"127.0.0.1"}}
	for _, hosts := range [][]string{
		{"web.test:" + plain, "WEB.test.:" + secure, "*.b.test:" + plain, "127.0.0.1:" + plain, "127.0.0.1:" + secure},
		{"web.test:" + plain, "web.test:" + secure, "*.test:" + plain, "127.0.0.1:" + plain, "127.0.0.1:" + secure, "[::1]:1"},
	} {
		g, at := gate(t, known, hosts...)
		for address, want := range map[string]string{
			"http://web.test:" + plain + "/x":   "GET web.test:" + plain + " /x proxy:false",
			"http://Web.Test.:" + plain + "/x":  "GET Web.Test.:" + plain + " /x proxy:false",
			"https://web.test:" + secure + "/y": "GET web.test:" + secure + " /y proxy:false",
			"http://a.b.test:" + plain + "/":    "GET a.b.test:" + plain + " / proxy:false",
		} {
			if status, body, err := through(t, at, address); status != http.StatusOK || body != want || err != nil {
				t.Errorf("%v, %s: %d %q, %v", hosts, address, status, body, err)
			}
		}
		if refused := g.Refused(); refused != nil {
			t.Errorf("refused %v", refused)
		}
	}
}

// What no entry names is not reached, by whatever spelling, and neither are addresses that are
// not public, by whatever name, unless an entry is that address. Metadata never is.
func TestGateRefuses(t *testing.T) {
	plain, secure := servers(t)
	known := map[string][]string{
		"web.test": {"127.0.0.1"}, "inside.test": {"10.1.2.3"}, "meta.test": {"169.254.169.254"}, "mapped.test": {"::ffff:127.0.0.1"},
		"metadata.google.internal": {"127.0.0.1"}, "rebound.test": {"127.0.0.1", "127.0.0.2"},
	}
	for _, tt := range []struct{ name, hosts, address string }{
		{"another host", "web.test", "http://other.test/"},
		{"a host that ends alike", "*.web.test", "http://evilweb.test/"},
		{"the domain itself", "*.web.test", "http://web.test/"},
		{"a loopback address of another port", "web.test:" + plain + " 127.0.0.1:1 127.0.0.1", "http://web.test:" + plain + "/"},
		{"another port", "web.test:1 127.0.0.1:" + plain, "http://web.test:" + plain + "/"},
		{"a port that is not the usual one", "web.test 127.0.0.1:" + plain, "http://web.test:" + plain + "/"},
		{"a loopback address behind a name", "web.test:" + plain, "http://web.test:" + plain + "/"},
		{"the same by https", "web.test:" + secure, "https://web.test:" + secure + "/"},
		{"an address in the place of the name", "web.test:" + plain, "http://127.0.0.1:" + plain + "/"},
		{"localhost", "web.test:" + plain, "http://localhost:" + plain + "/"},
		{"a mapped address", "mapped.test:" + plain, "http://mapped.test:" + plain + "/"},
		{"a private network", "inside.test", "http://inside.test/"},
		{"metadata behind a name", "meta.test 169.254.169.254", "http://meta.test/"},
		{"metadata by address", "169.254.169.254", "http://169.254.169.254/latest/meta-data/"},
		{"metadata by its own name", "metadata.google.internal 127.0.0.1:80", "http://metadata.google.internal/"},
		{"nothing named", "", "http://web.test:" + plain + "/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, at := gate(t, known, strings.Fields(tt.hosts)...)
			status, body, err := through(t, at, tt.address)
			secured := strings.HasPrefix(tt.address, "https") && err != nil && strings.Contains(err.Error(), "Forbidden")
			if !secured && (status != http.StatusForbidden || !strings.Contains(body, "which is not reached")) {
				t.Errorf("got %d %q, %v", status, body, err)
			}
			if u, _ := url.Parse(tt.address); len(g.Refused()) != 1 || !strings.HasPrefix(g.Refused()[0], u.Hostname()+":") {
				t.Errorf("refused: %v", g.Refused())
			}
		})
	}
	// A name is looked up once for a connection, which goes to the address that was checked.
	g, at := gate(t, known, "rebound.test:"+plain, "127.0.0.1:"+plain)
	if status, _, err := through(t, at, "http://rebound.test:"+plain+"/"); status != http.StatusOK || err != nil {
		t.Errorf("at first: %d, %v", status, err)
	}
	if status, body, err := through(t, at, "http://rebound.test:"+plain+"/"); status != http.StatusForbidden || !strings.Contains(body, "127.0.0.2 is a loopback address") {
		t.Errorf("rebound: %d %q, %v", status, body, err)
	}
	if want := []string{"rebound.test:" + plain}; !slices.Equal(g.Refused(), want) {
		t.Errorf("refused: %v, want %v", g.Refused(), want)
	}
}

// A request of http ends with its answer, whatever the server does with the connection, and with
// what it says before the answer.
func TestGateForwards(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer ln.Close()
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				if request.URL.Path == "/endless" {
					io.Copy(conn, io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nX: "), endless{}))
					return
				}
				body, _ := io.ReadAll(request.Body)
				fmt.Fprintf(conn, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				io.Copy(io.Discard, conn)
			})
		}
	})
	_, at := gate(t, map[string][]string{"web.test": {"127.0.0.1"}}, "web.test:"+port, "127.0.0.1:"+port)
	for _, tt := range []struct{ request, want string }{
		{"POST http://web.test:" + port + "/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"},
		{"POST http://web.test:" + port + "/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "\r\n\r\nhi"},
		{"GET http://web.test:" + port + "/endless HTTP/1.1\r\n\r\n", "502 Bad Gateway"},
	} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, tt.request); err != nil {
			t.Error(err)
		}
		text, err := io.ReadAll(conn)
		conn.Close()
		if !strings.Contains(string(text), tt.want) || err != nil {
			t.Errorf("%.60q: %q, %v, want %q", tt.request, text, err, tt.want)
		}
	}
}

// endless has an end never.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// What is no request to a proxy gets an answer that says so, and reaches nothing.
func TestGateRefusesOtherProtocols(t *testing.T) {
	plain, _ := servers(t)
	_, at := gate(t, map[string][]string{"web.test": {"127.0.0.1"}}, "web.test:"+plain, "127.0.0.1:"+plain)
	for _, tt := range []struct{ text, want string }{
		{"GET / HTTP/1.1\r\nHost: web.test:" + plain + "\r\n\r\n", "400 Bad Request"},
		{"GET ftp://web.test:" + plain + "/ HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
		{"\x05\x01\x00\r\n\r\n", "400 Bad Request"}, // SOCKS
		{"CONNECT web.test:99999 HTTP/1.1\r\nHost: x\r\n\r\n", "502 Bad Gateway"},
		{"GET http://web.test:" + plain + "/ HTTP/1.1\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "400 Bad Request"},
		// What the header says of the host is not what counts, and a second request is none.
		{"GET http://web.test:" + plain + "/a HTTP/1.1\r\nHost: evil.test\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n", "GET web.test:" + plain + " /a"},
	} {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, tt.text) }() // the gate may have closed it by then
		text, err := io.ReadAll(bufio.NewReader(conn))
		conn.Close()
		if !strings.Contains(string(text), tt.want) && !(len(tt.text) > 64<<10 && err != nil) || strings.Count(string(text), "HTTP/1.1 ") > 1 {
			t.Errorf("%.60q: %q, %v", tt.text, text, err)
		}
	}
}

// The end of the program ends what it had open; the gate waits for that.
func TestGateEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	g := egress.NewGate(egress.GateOptions{Hosts: []string{"127.0.0.1:" + port}})
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := own.(*net.TCPListener).File()
	own.Close()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		g.Serve(ctx, socket)
		close(served)
	}()
	conn, err := net.Dial("tcp", own.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "CONNECT 127.0.0.1:%s HTTP/1.1\r\n\r\nhello", port); err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	hello := make([]byte, 5)
	if _, err := io.ReadFull(server, hello); string(hello) != "hello" || err != nil {
		t.Errorf("the server got %q, %v", hello, err)
	}
	cancel()
	<-served
	if _, err := io.ReadAll(server); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the server's end: %v", err)
	}
}
