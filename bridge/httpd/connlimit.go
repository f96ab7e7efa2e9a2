package httpd

import (
	"container/list"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nexus.internal/bridge/auth"
)

// connLimiter bounds the connections of a server by what they have shown: those without a
// key, and those of scoped keys. Connections of full keys are not bounded: the files that
// the bounds leave free are for these and for agents. A connection counts until its descriptor
// is closed, also while it lingers. It is safe for concurrent use.
type connLimiter struct {
	// most is how many connections without a key there may be, the oldest of which is
	// closed for another one, and how many of all scoped keys together, where the key
	// with the most of them loses one.
	most int
	// stalled is how long a client that takes nothing of its answer keeps a connection that
	// the server has ended.
	stalled time.Duration

	stopping atomic.Bool    // set under mu, once
	lingers  sync.WaitGroup // the linger of each conn in lingering

	mu              sync.Mutex            // guards what follows, and the connState of each conn
	unauthenticated *list.List            // of *conn, the oldest first
	remote          *list.List            // the same, of clients on other machines: at most half as many, which displace no others
	scoped          map[string]*list.List // of *conn, by the id of the key
	keyed           int                   // connections in scoped
	lingering       map[*conn]bool
}

// connState is what a connLimiter knows of a connection; the mutex of that guards it.
type connState struct {
	in     *list.List // nil outside all bounds, and once it is closed
	at     *list.Element
	key    string      // id of the key that it showed last
	unbind func() bool // stops waiting for the end of that key
	idle   bool        // between two requests, or the server has ended it
	ended  bool        // its key has ended: it is closed once it is idle
	closed bool
	// answered says that the answer is written, though the request's line of the log may
	// not be: the client goes on meanwhile.
	answered bool
}

func newConnLimiter(most int, stalled time.Duration) *connLimiter {
	return &connLimiter{most: most, stalled: stalled, unauthenticated: list.New(), remote: list.New(), scoped: map[string]*list.List{}, lingering: map[*conn]bool{}}
}

// add takes in a connection that has shown nothing.
func (l *connLimiter) add(one *conn) {
	l.mu.Lock()
	in, most := l.unauthenticated, l.most
	if one.certificate != nil {
		in, most = l.remote, max(1, l.most/2)
	}
	one.in, one.at = in, in.PushBack(one)
	var gone *conn
	if in.Len() > most {
		gone, _ = in.Front().Value.(*conn)
	}
	l.mu.Unlock()
	evict(gone)
}

// authenticate notes that a connection has shown a good key. It counts for that key from now
// on, and is closed when valid ends, after the request that is under way.
func (l *connLimiter) authenticate(one *conn, g auth.Grant, valid context.Context) {
	l.mu.Lock()
	if one.closed || one.key == g.ID && !one.ended {
		l.mu.Unlock()
		return
	}
	l.remove(one)
	one.key, one.ended = g.ID, false
	one.unbind = context.AfterFunc(valid, func() { l.endKey(one, g.ID) })
	var gone *conn
	if g.Scope != auth.ScopeFull {
		gone = l.addScoped(one, g.ID)
	}
	l.mu.Unlock()
	evict(gone)
}

// addScoped puts a connection among those of a scoped key, and returns the one that must be
// closed for that, or nil. mu is held.
func (l *connLimiter) addScoped(one *conn, id string) *conn {
	own := l.scoped[id]
	if own == nil {
		own = list.New()
		l.scoped[id] = own
	}
	one.in, one.at = own, own.PushBack(one)
	if l.keyed++; l.keyed <= l.most {
		return nil
	}
	worst := own
	for _, other := range l.scoped {
		if other.Len() > worst.Len() || other.Len() == worst.Len() && worst == own {
			worst = other
		}
	}
	gone, _ := worst.Front().Value.(*conn)
	for at := worst.Front(); at != nil; at = at.Next() {
		other, _ := at.Value.(*conn)
		if other.idle {
			return other
		}
		if other.answered && !gone.answered {
			gone = other
		}
	}
	return gone
}

// setAnswered notes that the answer to a connection's request is written.
func (l *connLimiter) setAnswered(one *conn) {
	l.mu.Lock()
	one.answered = true
	l.mu.Unlock()
}

// endKey closes a connection whose key has ended, unless it has shown another one.
func (l *connLimiter) endKey(one *conn, id string) {
	l.mu.Lock()
	one.ended = one.ended || one.key == id
	over := one.ended && one.idle
	l.mu.Unlock()
	if over {
		one.hangUp()
	}
}

// setState notes a change of a connection's state. net/http reports it after the answer was
// written.
func (l *connLimiter) setState(one *conn, state http.ConnState) {
	l.mu.Lock()
	one.idle = state == http.StateIdle || state == http.StateClosed
	one.answered = one.idle
	over := one.ended && one.idle
	l.mu.Unlock()
	if over {
		one.hangUp()
	}
}

// forget forgets a connection that is closed. It may be called again.
func (l *connLimiter) forget(one *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.closed = true
	delete(l.lingering, one)
	l.remove(one)
}

// remove takes a connection out of its list. mu is held.
func (l *connLimiter) remove(one *conn) {
	if one.unbind != nil {
		one.unbind()
		one.unbind = nil
	}
	if one.in == nil {
		return
	}
	one.in.Remove(one.at)
	if one.in != l.unauthenticated && one.in != l.remote {
		l.keyed--
		if one.in.Len() == 0 {
			delete(l.scoped, one.key)
		}
	}
	one.in = nil
}

// evict resets a connection, or none (nil), for another one; its handler, if there is one,
// finds out.
func evict(one *conn) {
	if one != nil {
		one.reset()
	}
}

// startLinger starts the linger of a connection, unless the connection is closed or the
// server has ended.
func (l *connLimiter) startLinger(one *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.closed || l.stopping.Load() {
		return false
	}
	l.lingering[one] = true
	l.lingers.Go(one.linger)
	return true
}

// close lets the connections that linger end as soon as their clients have all that was
// written, and closes the others when ctx ends: the system delivers the rest. A connection
// that ends later is closed at once.
func (l *connLimiter) close(ctx context.Context) {
	l.mu.Lock()
	l.stopping.Store(true)
	l.mu.Unlock()
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		l.lingers.Wait()
	}()
	select {
	case <-joined:
	case <-ctx.Done():
	}
	l.mu.Lock()
	rest := slices.Collect(maps.Keys(l.lingering))
	l.mu.Unlock()
	for _, one := range rest {
		one.finish(false)
	}
	<-joined
}
