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

	"nexus.internal/protocol/accept"
)

const (
	// maxConns is how many connections a child may have; one more is closed.
	maxConns = 64
	// maxOtherConns is how many connections others may have at one socket, to be
	// told that it is not for them.
	maxOtherConns = 4
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

// agentSocket is the socket of one incarnation.
type agentSocket struct {
	broker         *Broker
	account        *account
	server         *http.Server
	cancelRequests context.CancelFunc // of all requests
	path           string
	acceptEnded    chan struct{}  // closed when nothing is accepted any more
	conns          sync.WaitGroup // goroutines of connections; Add only until served
	closeOnce      sync.Once
	warnOnce       sync.Once // of other processes

	admitted chan struct{} // closed once pid is valid
	pid      int

	mu         sync.Mutex // guards the counts
	childConns int
	otherConns int
}

// openSocket makes the socket of an agent's next incarnation.
func (b *Broker) openSocket(agent string) (*agentSocket, error) {
	if err := b.lockWithAccounts(agent); err != nil {
		return nil, fmt.Errorf("open the model's socket: %w", err)
	}
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("open the model's socket: the broker is closed")
	}
	path := b.socketPath(agent)
	// One that is there belongs to an incarnation whose end is not over: its
	// socket must not become the next one's.
	ln, err := b.listen(path)
	if err != nil {
		return nil, fmt.Errorf("open the model's socket: %w", err)
	}
	sock := &agentSocket{
		broker: b, account: b.accounts[agent], path: path,
		acceptEnded: make(chan struct{}), admitted: make(chan struct{}),
	}
	ctx, end := context.WithCancel(context.Background())
	sock.cancelRequests = end
	sock.server = &http.Server{
		Handler:                      sock,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     zap.NewStdLog(b.log.Named("http")),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*conn).peer)
		},
		ConnState: sock.countConn,
	}
	sock.account.sockets++
	b.sockets[sock] = struct{}{}
	go func() {
		defer close(sock.acceptEnded)
		_ = sock.server.Serve(&listener{Listener: accept.Retry(ln, b.log), socket: sock}) // ends by close alone
	}()
	return sock, nil
}

// admit says which process the socket is for.
func (sock *agentSocket) admit(pid int) {
	sock.pid = pid
	close(sock.admitted)
}

// close ends what runs, removes the socket and returns when nothing of it is
// left. It may be called again.
func (sock *agentSocket) close() {
	sock.closeOnce.Do(func() {
		_ = sock.server.Close() // of the listener, which is ours
		// A request whose body is not read to its end does not see that its
		// connection is closed, and would wait for its service without end.
		sock.cancelRequests()
		<-sock.acceptEnded
		_ = os.Remove(sock.path) // or it went with its directory
		_ = sock.server.Close()  // what was accepted meanwhile
		sock.conns.Wait()
		b := sock.broker
		b.mu.Lock()
		delete(b.sockets, sock)
		sock.account.sockets--
		b.mu.Unlock()
	})
}

// countConn joins the goroutines of connections: the server starts one after
// StateNew, and its last act is StateClosed.
func (sock *agentSocket) countConn(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		sock.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		sock.conns.Done()
	case http.StateActive, http.StateIdle:
	}
}

// isChild reports whether p may be the child; sure is false before it is known
// which process that is.
func (sock *agentSocket) isChild(p peer) (may, sure bool) {
	if p.uid != sock.broker.uid || p.pid <= 0 {
		return false, true
	}
	select {
	case <-sock.admitted:
		return p.pid == sock.pid, true
	default:
		return true, false
	}
}

// waitPermitted waits until it is known who the child is, and reports whether p is.
func (sock *agentSocket) waitPermitted(ctx context.Context, p peer) bool {
	may, sure := sock.isChild(p)
	if sure {
		return may
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-sock.admitted:
	case <-timeout.C:
		return false
	case <-ctx.Done():
		return false
	}
	may, _ = sock.isChild(p)
	return may
}

type peerKey struct{}

// listener accepts connections and asks the kernel who made them.
type listener struct {
	net.Listener // of Unix sockets
	socket       *agentSocket
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := accepted.(*net.UnixConn)
		p, err := peerOf(c)
		if err != nil {
			l.socket.broker.log.Warn("who asks for a model is not known", zap.Error(err))
			_ = c.Close()
			continue
		}
		if wrapped := l.socket.wrapConn(c, p); wrapped != nil {
			return wrapped, nil
		}
		_ = c.Close()
	}
}

// conn is a connection whose other end is known.
type conn struct {
	*net.UnixConn
	peer    peer
	uncount func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.uncount()
	return c.UnixConn.Close()
}

// wrapConn counts a connection; nil if there are too many of its kind.
func (sock *agentSocket) wrapConn(c *net.UnixConn, p peer) *conn {
	may, _ := sock.isChild(p)
	count, most := &sock.childConns, maxConns
	if !may {
		count, most = &sock.otherConns, maxOtherConns
	}
	sock.mu.Lock()
	defer sock.mu.Unlock()
	if *count >= most {
		return nil
	}
	*count++
	return &conn{UnixConn: c, peer: p, uncount: sync.OnceFunc(func() {
		sock.mu.Lock()
		defer sock.mu.Unlock()
		*count--
	})}
}
