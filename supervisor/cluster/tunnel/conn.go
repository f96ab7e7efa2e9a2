package tunnel

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// window is how many bytes one side may send before the other has read any of them.
	window = 1 << 20
	// sayRead is after how many bytes that were read the other side is told of them: of most calls and answers it is not.
	sayRead = window / 4
	// chunk is how many bytes one message carries at most. NATS takes 1 MiB.
	chunk = 32 << 10
	// silence is after how long without a word the other side is gone. Each side says thrice in it that it is there.
	silence = 15 * time.Second
)

// A message is its kind, its number in 8 bytes, the first 1, and what follows: of data the bytes, of read how many
// in 8 bytes, of all others nothing.
const (
	data  = 'd'
	read  = 'r' // so many bytes were read: as many more may come
	beat  = 'b'
	end   = 'e' // no data follows
	reset = 'x' // the connection is over

	headBytes = 9
)

// Conn is a connection. It is a pipe within the process, whose other end goes to the other machine.
type Conn struct {
	net.Conn          // what the caller reads and writes
	inner    net.Conn // what goes to the other machine
	t        *Tunnel
	subject  string
	dialed   bool   // by this side, at subject
	own      string // where this side is heard
	heard    *nats.Subscription
	started  chan struct{} // closed once there is another side
	over     chan struct{} // closed when the connection is

	sending sync.Mutex // over numbers and their messages, so that they go in their order
	sent    uint64

	mu      sync.Mutex
	peer    string // where the other side is heard; "" before it is known
	got     uint64 // the number of the last message
	room    int    // bytes that may be sent
	inbox   []byte // bytes that have come
	unread  int    // these, and those that the caller is about to read
	ended   bool   // no data comes any more
	last    time.Time
	failure error // why it is over; nil while it is not

	changed chan struct{} // has a value when inbox or ended has changed
	roomier chan struct{} // has a value when room has grown
}

func newConn(t *Tunnel, subject string) *Conn {
	outer, inner := net.Pipe()
	return &Conn{
		Conn: outer, inner: inner, t: t, subject: subject, own: nats.NewInbox(), room: window, last: time.Now(),
		started: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}, 1), roomier: make(chan struct{}, 1),
	}
}

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return address(c.own) }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr { return address(c.subject) }

// Read implements [net.Conn]. Behind what has come, the error says why nothing more does.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.why(err)
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err = c.why(err); err == io.EOF { //nolint:errorlint // as why makes it
		err = ErrReset
	}
	return n, err
}

// why is the failure behind an error of the pipe.
func (c *Conn) why(err error) error {
	if err == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	return err
}

// start has the connection go on with the other side, which is heard at peer.
func (c *Conn) start(peer string) {
	c.mu.Lock()
	c.peer = peer
	c.mu.Unlock()
	close(c.started)
}

// fail ends the connection at once.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	first := c.failure == nil
	if first {
		c.failure = err
		close(c.over)
	}
	c.mu.Unlock()
	if first {
		_ = c.inner.Close()
	}
}

// run is the life of a connection; all that it starts has ended when it returns.
func (c *Conn) run() {
	defer c.t.forget(c)
	select {
	case <-c.started:
		var all sync.WaitGroup
		all.Go(c.deliver)
		all.Go(c.beats)
		c.pump()
		all.Wait()
	case <-c.over:
	}
	_ = c.send(reset, nil) // the other side may be gone
	_ = c.heard.Unsubscribe()
	_ = c.inner.Close()
	_ = c.Conn.Close()
}

// send sends a message to the other side.
func (c *Conn) send(kind byte, payload []byte) error {
	c.mu.Lock()
	peer := c.peer
	c.mu.Unlock()
	if peer == "" {
		return nil
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	c.sent++
	m := append(binary.BigEndian.AppendUint64([]byte{kind}, c.sent), payload...)
	return c.t.nc.Publish(peer, m)
}

// receive takes a message of the other side. It never waits.
func (c *Conn) receive(m *nats.Msg) {
	if err := c.took(m.Data); err != nil {
		c.fail(err)
	}
}

func (c *Conn) took(m []byte) error {
	if len(m) < headBytes {
		return ErrLost
	}
	kind, number, payload := m[0], binary.BigEndian.Uint64(m[1:]), m[headBytes:]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got++; number != c.got {
		return ErrLost
	}
	c.last = time.Now()
	switch kind {
	case data:
		if c.unread += len(payload); c.unread > window || c.ended {
			return ErrLost // it does not keep to what was agreed
		}
		c.inbox = append(c.inbox, payload...)
		signal(c.changed)
	case end:
		c.ended = true
		signal(c.changed)
	case read:
		if len(payload) == 8 {
			c.room += int(binary.BigEndian.Uint64(payload))
			signal(c.roomier)
		}
	case reset:
		if !c.ended { // else what has come is read first
			return ErrReset
		}
	}
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pump sends what the caller writes, until it closes the connection.
func (c *Conn) pump() {
	buffer := make([]byte, chunk)
	for {
		n, err := c.inner.Read(buffer)
		for sent := 0; sent < n; {
			m := c.reserve(n - sent)
			if m == 0 {
				return // it is over
			}
			if err := c.send(data, buffer[sent:sent+m]); err != nil {
				c.fail(err)
				return
			}
			sent += m
		}
		if err == io.EOF { //nolint:errorlint // as a pipe says that its other end was closed
			if err = c.send(end, nil); err == nil {
				err = net.ErrClosed
			}
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// reserve waits for room to send, and takes at most n bytes of it; 0 when the connection is over.
func (c *Conn) reserve(n int) int {
	for {
		c.mu.Lock()
		n := min(n, c.room)
		c.room -= n
		c.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-c.roomier:
		case <-c.over:
			return 0
		}
	}
}

// deliver gives the caller what has come.
func (c *Conn) deliver() {
	for unsaid := 0; ; {
		c.mu.Lock()
		came, ended := c.inbox, c.ended
		c.inbox = nil
		c.mu.Unlock()
		if len(came) == 0 {
			if ended {
				c.fail(io.EOF)
				return
			}
			select {
			case <-c.changed:
			case <-c.over:
				return
			}
			continue
		}
		if _, err := c.inner.Write(came); err != nil {
			return // the caller has closed it, and pump sees that
		}
		c.mu.Lock()
		c.unread -= len(came)
		c.mu.Unlock()
		if unsaid += len(came); unsaid < c.t.sayRead {
			continue
		}
		if err := c.send(read, binary.BigEndian.AppendUint64(nil, uint64(unsaid))); err != nil {
			c.fail(err)
			return
		}
		unsaid = 0
	}
}

// unheard is how long nothing was heard of the other side.
func (c *Conn) unheard() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last)
}

// beats says that this side is there, and looks whether the other one is.
func (c *Conn) beats() {
	every := time.NewTicker(c.t.silence / 3)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-c.over:
			return
		}
		if c.unheard() > c.t.silence {
			c.fail(ErrSilent)
			return
		}
		if err := c.send(beat, nil); err != nil {
			c.fail(err)
			return
		}
	}
}
