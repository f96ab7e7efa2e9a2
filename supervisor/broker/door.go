package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxConns is how many connections a child may have; one more is closed.
	maxConns = 64
	// maxStrangers is how many connections others may have at one socket, to be
	// told that it is not for them.
	maxStrangers = 4
	// maxHeader bounds the headers of a request, and of an answer, in bytes.
	maxHeader = 64 << 10
	// headerTimeout is how long a request's headers may take.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection may be kept without a request.
	idleTimeout = 90 * time.Second
	// startTimeout is how long a request may wait for its child to be ready,
	// which is when it is known who the child is.
	startTimeout = 10 * time.Second
)

// peer is the process at the other end of a connection, when it connected.
type peer struct{ pid, uid int }

// door is the socket of one incarnation.
type door struct {
	broker  *Broker
	account *account
	server  *http.Server
	end     context.CancelFunc // of all requests
	path    string
	served  chan struct{}  // closed when nothing is accepted any more
	conns   sync.WaitGroup // goroutines of connections; Add only until served
	once    sync.Once
	warned  sync.Once // of strangers

	known chan struct{} // closed once pid is valid
	pid   int

	mu        sync.Mutex // guards the counts
	own       int
	strangers int
}

// open makes the socket of an agent's next incarnation.
func (b *Broker) open(agent string) (*door, error) {
	if err := b.lockWith(agent); err != nil {
		return nil, fmt.Errorf("open the model's socket: %w", err)
	}
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("open the model's socket: the broker is closed")
	}
	path := b.socket(agent)
	// One that is there belongs to an incarnation whose end is not over: its
	// socket must not become the next one's.
	ln, err := listenAt(path)
	if err != nil {
		return nil, fmt.Errorf("open the model's socket: %w", err)
	}
	d := &door{
		broker: b, account: b.accounts[agent], path: path,
		served: make(chan struct{}), known: make(chan struct{}),
	}
	ctx, end := context.WithCancel(context.Background())
	d.end = end
	d.server = &http.Server{
		Handler:                      d,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     zap.NewStdLog(b.log.Named("http")),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*conn).peer)
		},
		ConnState: d.count,
	}
	d.account.doors++
	b.doors[d] = struct{}{}
	go func() {
		defer close(d.served)
		_ = d.server.Serve(&listener{UnixListener: ln, door: d}) // ends by close alone
	}()
	return d, nil
}

// admit says which process the socket is for.
func (d *door) admit(pid int) {
	d.pid = pid
	close(d.known)
}

// close ends what runs, removes the socket and returns when nothing of it is
// left. It may be called again.
func (d *door) close() {
	d.once.Do(func() {
		_ = d.server.Close() // of the listener, which is ours
		// A request whose body is not read to its end does not see that its
		// connection is closed, and would wait for its service without end.
		d.end()
		<-d.served
		_ = os.Remove(d.path) // or it went with its directory
		_ = d.server.Close()  // what was accepted meanwhile
		d.conns.Wait()
		b := d.broker
		b.mu.Lock()
		delete(b.doors, d)
		d.account.doors--
		b.mu.Unlock()
	})
}

// count joins the goroutines of connections: the server starts one after
// StateNew, and its last act is StateClosed.
func (d *door) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		d.conns.Done()
	case http.StateActive, http.StateIdle:
	}
}

// owner reports whether p may be the child; sure is false before it is known
// which process that is.
func (d *door) owner(p peer) (may, sure bool) {
	if p.uid != d.broker.uid || p.pid <= 0 {
		return false, true
	}
	select {
	case <-d.known:
		return p.pid == d.pid, true
	default:
		return true, false
	}
}

// permit waits until it is known who the child is, and reports whether p is.
func (d *door) permit(ctx context.Context, p peer) bool {
	may, sure := d.owner(p)
	if sure {
		return may
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-d.known:
	case <-timeout.C:
		return false
	case <-ctx.Done():
		return false
	}
	may, _ = d.owner(p)
	return may
}

type peerKey struct{}

// listener accepts connections and asks the kernel who made them.
type listener struct {
	*net.UnixListener
	door *door
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		p, err := peerOf(c)
		if err != nil {
			l.door.broker.log.Warn("who asks for a model is not known", zap.Error(err))
			_ = c.Close()
			continue
		}
		if wrapped := l.door.take(c, p); wrapped != nil {
			return wrapped, nil
		}
		_ = c.Close()
	}
}

// conn is a connection whose other end is known.
type conn struct {
	*net.UnixConn
	peer peer
	gone func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.gone()
	return c.UnixConn.Close()
}

// take counts a connection; nil if there are too many of its kind.
func (d *door) take(c *net.UnixConn, p peer) *conn {
	may, _ := d.owner(p)
	count, most := &d.own, maxConns
	if !may {
		count, most = &d.strangers, maxStrangers
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if *count >= most {
		return nil
	}
	*count++
	return &conn{UnixConn: c, peer: p, gone: sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		*count--
	})}
}
