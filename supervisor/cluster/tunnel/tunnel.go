package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"nexus.internal/protocol/format"
)

// Errors of a connection.
var (
	// ErrLost says that a message was lost on the way, so that nothing behind it can be told.
	ErrLost = errors.New("a message between the machines was lost")
	// ErrSilent says that the other side was not heard of for too long.
	ErrSilent = errors.New("the other machine does not answer")
	// ErrAnew says that the other side is another process by now.
	ErrAnew = errors.New("the server of the other machine has ended, and was started anew")
	// ErrNoServer says that there is no server of NATS for the moment.
	ErrNoServer = errors.New("NATS is not reached")
	// ErrReset says that the other side has ended the connection, or does not know it.
	ErrReset = errors.New("the other machine has ended the connection")
)

// dialPatience bounds the wait for whoever listens: it may have gone without a word.
const dialPatience = 5 * time.Second

// flushPatience is how long the server may take to know who listens.
const flushPatience = time.Second

// maxWaiting is how many connections may wait for Accept; further ones are refused.
const maxWaiting = 128

// Tunnel makes connections over one client of NATS. Its methods may be called from any goroutine.
type Tunnel struct {
	nc      *nats.Conn
	later   *format.Later
	silence time.Duration // after which the other side is gone
	sayRead int           // as the constant
	dialing time.Duration // that whoever listens has for an answer
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*Conn]struct{}
}

// New makes connections over nc, which stays its caller's. later takes what is met of later formats; nil takes nothing.
func New(nc *nats.Conn, later *format.Later) *Tunnel {
	return &Tunnel{nc: nc, later: later, silence: silence, sayRead: sayRead, dialing: dialPatience, conns: map[*Conn]struct{}{}}
}

// Close ends all connections, and waits until nothing of them runs.
func (t *Tunnel) Close() {
	t.mu.Lock()
	t.closed = true
	for c := range t.conns {
		c.fail(net.ErrClosed)
	}
	t.mu.Unlock()
	t.running.Wait()
}

// Break ends the connections that were dialled to a subject and whose other side was not heard of for so long: it is gone, as why says.
func (t *Tunnel) Break(subject string, quiet time.Duration, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		if c.dialed && c.subject == subject && c.unheard() > quiet {
			c.fail(why)
		}
	}
}

// Dial connects to whoever listens at a subject. It fails at once if nobody does,
// and after [dialPatience] if who did is gone.
func (t *Tunnel) Dial(ctx context.Context, subject string) (*Conn, error) {
	c, err := t.open(subject, true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.dialing)
	defer cancel()
	answer, err := t.nc.RequestWithContext(ctx, subject, []byte(c.own))
	if err == nil && len(answer.Data) == 0 {
		err = refusal(answer)
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nothing is kept until there is one again
		err = ErrNoServer
	}
	if err != nil {
		c.fail(err)
		return nil, fmt.Errorf("connect to %s: %w", subject, err)
	}
	c.start(string(answer.Data))
	return c, nil
}

// whyHeader says in an answer without data why there is no connection.
const whyHeader = "Nexus-Why"

func refusal(answer *nats.Msg) error {
	if why := answer.Header.Get(whyHeader); why != "" {
		return fmt.Errorf("the other machine refuses it: %s", why)
	}
	return errors.New("it takes no further connection")
}

// open makes a connection that is heard from now on, and not started.
func (t *Tunnel) open(subject string, dialed bool) (*Conn, error) {
	c := newConn(t, subject)
	c.dialed = dialed
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, net.ErrClosed
	}
	var err error
	if c.heard, err = t.nc.Subscribe(c.own, c.receive); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", subject, err)
	}
	t.conns[c] = struct{}{}
	t.running.Go(c.run)
	return c, nil
}

func (t *Tunnel) forget(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Listener accepts connections at a subject.
type Listener struct {
	t       *Tunnel
	subject string
	heard   *nats.Subscription
	waiting chan *Conn
	done    chan struct{}
	once    sync.Once
}

// Listen accepts connections at a subject, until the listener is closed.
func (t *Tunnel) Listen(subject string) (*Listener, error) {
	l := &Listener{t: t, subject: subject, waiting: make(chan *Conn, maxWaiting), done: make(chan struct{})}
	var err error
	if l.heard, err = t.nc.Subscribe(subject, l.asked); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", subject, err)
	}
	if t.nc.IsConnected() {
		_ = t.nc.FlushTimeout(flushPatience) // whoever connects from now on is heard; without a server, once there is one
	}
	return l, nil
}

// asked takes a request for a connection: its data is where the other side listens in format 1; in a later one it is a JSON object, and
// the messages of the connection are others.
func (l *Listener) asked(m *nats.Msg) {
	if err := l.t.later.Note(format.Connection.Check(m.Data)); err != nil {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{whyHeader: {err.Error()}}}) // or nobody is there any more
		return
	}
	c, err := l.t.open(l.subject, false)
	if err != nil {
		_ = m.Respond(nil) // or nobody is there any more
		return
	}
	select {
	case <-l.done:
		err = net.ErrClosed
	default:
		select {
		case l.waiting <- c:
		default:
			err = errors.New("too many connections wait")
		}
	}
	if err != nil {
		c.fail(err)
		_ = m.Respond(nil)
		return
	}
	if err := m.Respond([]byte(c.own)); err != nil {
		c.fail(err)
		return
	}
	c.start(string(m.Data))
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. Connections that were accepted go on.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.done)
		err = l.heard.Unsubscribe()
		for {
			select {
			case c := <-l.waiting:
				c.fail(net.ErrClosed)
			default:
				return
			}
		}
	})
	return err
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return address(l.subject) }

// address is a subject as a [net.Addr].
type address string

func (address) Network() string  { return "nats" }
func (a address) String() string { return string(a) }
