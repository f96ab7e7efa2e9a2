package browser

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// relay stands between a browser and a server and can be cut. The browser takes
// localhost for its address, which is not the server's, but has its port: so the
// server is called by a name that it knows.
type relay struct {
	t    *testing.T
	to   string // HOST:PORT of the server
	addr string // our own
	url  string // as the browser has to call it
	work sync.WaitGroup

	mu    sync.Mutex // guards what follows
	in    net.Listener
	conns map[net.Conn]bool
}

// throughRelay has a browser find a relay at localhost.
var throughRelay = chromedp.Flag("host-resolver-rules", "MAP localhost 127.0.0.2")

func relayTo(t *testing.T, s *server) *relay {
	t.Helper()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, to: at.Host, addr: net.JoinHostPort("127.0.0.2", at.Port()), url: "http://localhost:" + at.Port()}
	r.mend()
	t.Cleanup(r.cut)
	return r
}

// mend lets connections through.
func (r *relay) mend() {
	r.t.Helper()
	in, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.in, r.conns = in, map[net.Conn]bool{}
	r.mu.Unlock()
	r.work.Go(func() {
		for {
			from, err := in.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				from.Close()
				continue
			}
			if !r.keep(in, from, to) {
				return
			}
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				r.work.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					from.Close()
					to.Close()
				})
			}
		}
	})
}

// keep remembers connections to be cut, unless they come too late.
func (r *relay) keep(in net.Listener, conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		if r.in != in {
			conn.Close()
		} else {
			r.conns[conn] = true
		}
	}
	return r.in == in
}

// cut breaks all connections and takes no more, and waits until that is so.
func (r *relay) cut() {
	r.mu.Lock()
	if r.in != nil {
		r.in.Close()
		r.in = nil
	}
	for conn := range r.conns {
		conn.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}
