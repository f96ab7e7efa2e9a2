package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/accept"
	"nexus.internal/protocol/rights"
)

const (
	// maxConnections is how many connections of one program a gate serves at once; the others wait.
	maxConnections = 256
	// headerTime is how long a program may take to say where a connection shall go.
	headerTime = 30 * time.Second
	// maxRequest bounds the header of a request, in bytes.
	maxRequest = 64 << 10
	// maxResponse bounds the header of a response, in bytes.
	maxResponse = 1 << 20
	// maxRefused is how many refused hosts a gate remembers.
	maxRefused = 16
)

// Resolver looks up names, as *net.Resolver does. It is safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// GateOptions is what a [Gate] is made of.
type GateOptions struct {
	// Hosts are those that are reached, as [rights.ParseHost] reads them; others are passed over.
	Hosts []string
	// Resolver looks up names; nil is the system's.
	Resolver Resolver
	// Log may be nil.
	Log *zap.Logger
}

// Gate is an HTTP proxy that reaches named hosts alone: by CONNECT, or by a request of http.
// A name is looked up once for each connection, and the connection goes to an address that was
// checked: a public one, or one that the hosts name with that port. It serves programs that have no other way
// out (sandbox.Gate), and is safe for concurrent use.
type Gate struct {
	hosts    []rights.Host
	resolver Resolver
	log      *zap.Logger

	mu      sync.Mutex // guards all below
	refused []string   // at most maxRefused, the first ones
}

// NewGate returns a Gate.
func NewGate(o GateOptions) *Gate {
	g := &Gate{resolver: o.Resolver, log: o.Log}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	if g.log == nil {
		g.log = zap.NewNop()
	}
	for _, text := range o.Hosts {
		h, err := rights.ParseHost(text)
		if err != nil {
			continue
		}
		g.hosts = append(g.hosts, h)
	}
	return g
}

// rule is where connections to a port may go: to what is public, and to addresses that are
// named with that port.
func (g *Gate) rule(port uint16) (r Rule) {
	for _, h := range g.hosts {
		if h.Addr.IsValid() && h.Covers(h.Name, port) {
			r.Allowed = append(r.Allowed, netip.PrefixFrom(h.Addr, h.Addr.BitLen()))
		}
	}
	return r
}

// Hosts are those that are reached.
func (g *Gate) Hosts() (list []string) {
	for _, h := range g.hosts {
		list = append(list, h.String())
	}
	return list
}

// Refused are the hosts, with ports, that were asked for and not reached by the rule; the
// first 16.
func (g *Gate) Refused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.refused)
}

// Serve implements sandbox.Gate.
func (g *Gate) Serve(ctx context.Context, socket *os.File) {
	ln, err := net.FileListener(socket)
	socket.Close()
	if err != nil {
		g.log.Warn("serve a program's way to the network", zap.Error(err))
		return
	}
	ln = accept.Retry(ln, g.log)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	slots := make(chan struct{}, maxConnections)
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer func() { <-slots }()
			g.serve(ctx, conn)
		})
	}
}

// serve serves one connection, which asks for one host.
func (g *Gate) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(headerTime))
	limited := &io.LimitedReader{R: conn, N: maxRequest}
	r := bufio.NewReader(limited)
	request, err := http.ReadRequest(r)
	if err != nil {
		answer(conn, http.StatusBadRequest, "this is a proxy for HTTP: "+err.Error())
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	limited.N = 1 << 62
	target, port := request.Host, "443"
	if request.Method != http.MethodConnect {
		target, port = request.URL.Host, "80"
		if request.URL.Scheme != "http" || target == "" {
			answer(conn, http.StatusBadRequest, "this is a proxy: it takes CONNECT, and requests of http:// with the whole address")
			return
		}
	}
	server, err := g.dial(ctx, target, port)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		answer(conn, http.StatusForbidden, refused.Error())
		return
	}
	if err != nil {
		answer(conn, http.StatusBadGateway, err.Error())
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if request.Method == http.MethodConnect {
		if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
			tunnel(conn, r, server)
		}
		return
	}
	forward(conn, request, server)
}

// answer is what the gate itself says.
func answer(conn net.Conn, status int, text string) {
	text += "\n"
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nX-Nexus: gate\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text) // or nobody waits for it any more
}

// tunnel passes on what either side says, until both are done.
func tunnel(conn net.Conn, from io.Reader, server net.Conn) {
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, server)
		closeWrite(conn)
	})
	_, _ = io.Copy(server, from)
	closeWrite(server)
	back.Wait()
}

// closeWrite tells the other side that nothing more comes.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// forward makes a request of the server, and passes on its answer, after which both
// connections end.
func forward(conn net.Conn, request *http.Request, server net.Conn) {
	for _, name := range append(strings.Split(strings.Join(request.Header["Connection"], ","), ","), "Connection", "Proxy-Connection", "Proxy-Authorization", "Keep-Alive", "Te", "Upgrade") {
		request.Header.Del(strings.TrimSpace(name))
	}
	request.Close = true
	if request.Header["User-Agent"] == nil {
		request.Header["User-Agent"] = nil // else ours is added
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer conn.Close() // also if the program still sends
		response, err := finalResponse(server, request)
		if err != nil {
			answer(conn, http.StatusBadGateway, err.Error())
			return
		}
		defer response.Body.Close()
		response.Header.Del("Connection")
		response.Close = true
		_ = response.Write(conn) // or nobody waits for it any more
	})
	_ = request.Write(server) // the answer, or its end, says what is wrong
	back.Wait()
}

// finalResponse reads the answer to a request, without those that only say that there will be one.
func finalResponse(server io.Reader, request *http.Request) (*http.Response, error) {
	limited := &io.LimitedReader{R: server, N: maxResponse}
	r := bufio.NewReader(limited)
	for {
		response, err := http.ReadResponse(r, request)
		if err != nil || response.StatusCode >= http.StatusOK {
			limited.N = 1 << 62
			return response, err
		}
	}
}

// dial connects to a host and port, if the rule lets it.
func (g *Gate) dial(ctx context.Context, target, port string) (net.Conn, error) {
	host := target
	if h, p, err := net.SplitHostPort(target); err == nil {
		host, port = h, p
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	addr, isAddr := netip.ParseAddr(host)
	if isAddr == nil {
		host = addr.Unmap().String()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s: port %q is no number", host, port)
	}
	at := net.JoinHostPort(host, port)
	if !slices.ContainsFunc(g.hosts, func(h rights.Host) bool { return h.Covers(host, uint16(n)) }) {
		return nil, g.refuse(at, &RefusedError{at, "a host that this agent's permissions do not name"})
	}
	rule := g.rule(uint16(n))
	if err := rule.CheckHost(host); err != nil {
		return nil, g.refuse(at, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs := []netip.Addr{addr}
	if isAddr != nil {
		if addrs, err = g.resolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	err = fmt.Errorf("%s has no address", host)
	for _, addr := range addrs {
		if refused := rule.Check(addr); refused != nil {
			err = g.refuse(at, refused)
			continue
		}
		var conn net.Conn
		if conn, err = rule.Dialer().DialContext(ctx, "tcp", netip.AddrPortFrom(addr.Unmap(), uint16(n)).String()); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// refuse remembers that a host was refused.
func (g *Gate) refuse(at string, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refused) < maxRefused && !slices.Contains(g.refused, at) {
		g.refused = append(g.refused, at)
	}
	return err
}
