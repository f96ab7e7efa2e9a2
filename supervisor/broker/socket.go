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
	requests       context.Context    // of all requests
	cancelRequests context.CancelFunc // ends it
	path           string
	listener       net.Listener
	accepted       chan net.Conn  // from listener to server
	acceptEnded    chan struct{}  // closed when nothing is accepted any more
	server         *http.Server   // nil before the first connection; read after acceptEnded
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
func (b *Broker) openSocket(agent string) (sock *agentSocket, err error) {
	if err := b.withAccounts(func() error {
		sock, err = b.listenFor(agent)
		return err
	}, agent); err != nil {
		return nil, fmt.Errorf("open the model's socket: %w", err)
	}
	return sock, nil
}

// listenFor makes the socket of an agent whose account is in memory. b.mu is held.
func (b *Broker) listenFor(agent string) (*agentSocket, error) {
	if b.closed {
		return nil, errors.New("the broker is closed")
	}
	path := b.socketPath(agent)
	// One that is there belongs to an incarnation whose end is not over: its
	// socket must not become the next one's.
	ln, err := b.listen(path)
	if err != nil {
		return nil, err
	}
	sock := &agentSocket{
		broker: b, account: b.accounts[agent], path: path,
		accepted: make(chan net.Conn), acceptEnded: make(chan struct{}), admitted: make(chan struct{}),
	}
	sock.listener = &listener{Listener: accept.Retry(ln, b.log), socket: sock}
	sock.requests, sock.cancelRequests = context.WithCancel(context.Background())
	sock.account.sockets++
	b.sockets[sock] = struct{}{}
	go sock.accept()
	return sock, nil
}

// accept accepts connections until the socket is closed. The server for them is made for the first one:
// a child that asks for nothing costs no more than this goroutine.
func (sock *agentSocket) accept() {
	defer close(sock.acceptEnded)
	for {
		c, err := sock.listener.Accept()
		if err != nil {
			break // it was closed
		}
		if sock.server == nil {
			sock.server = sock.newServer()
			served := make(chan struct{})
			defer func() { <-served }()
			go func() {
				defer close(served)
				_ = sock.server.Serve(handover{sock}) // ends with what is accepted
			}()
		}
		sock.accepted <- c
	}
	close(sock.accepted)
}

// newServer makes what answers requests.
func (sock *agentSocket) newServer() *http.Server {
	return &http.Server{
		Handler:                      sock,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     zap.NewStdLog(sock.broker.log.Named("http")),
		BaseContext:                  func(net.Listener) context.Context { return sock.requests },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*conn).peer)
		},
		ConnState: sock.countConn,
	}
}

// handover is the listener of the server: it has what accept accepts.
type handover struct{ sock *agentSocket }

// Accept implements [net.Listener].
func (h handover) Accept() (net.Conn, error) {
	if c, ok := <-h.sock.accepted; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Addr implements [net.Listener].
func (h handover) Addr() net.Addr { return h.sock.listener.Addr() }

// Close implements [net.Listener]: who closes the socket closes that of accept.
func (handover) Close() error { return nil }

// admit says which process the socket is for.
func (sock *agentSocket) admit(pid int) {
	sock.pid = pid
	close(sock.admitted)
}

// close ends what runs, removes the socket and returns when nothing of it is
// left. It may be called again.
func (sock *agentSocket) close() {
	sock.closeOnce.Do(func() {
		_ = sock.listener.Close()
		// A request whose body is not read to its end does not see that its
		// connection is closed, and would wait for its service without end.
		sock.cancelRequests()
		<-sock.acceptEnded
		_ = os.Remove(sock.path) // or it went with its directory
		if sock.server != nil {
			_ = sock.server.Close()
		}
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
