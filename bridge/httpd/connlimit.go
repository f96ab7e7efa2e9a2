package httpd

import (
	"container/list"
	"context"
	"net/http"
	"sync"

	"nexus.internal/bridge/auth"
)

// connLimiter bounds the connections of a server by what they have shown: those without a
// key, and those of scoped keys. Connections of full keys are not bounded: the files that
// the bounds leave free are for these and for agents. It is safe for concurrent use.
type connLimiter struct {
	// most is how many connections without a key there may be, the oldest of which is
	// closed for another one, and how many of all scoped keys together, where the key
	// with the most of them loses one.
	most int

	mu              sync.Mutex            // guards what follows, and the connState of each conn
	unauthenticated *list.List            // of *conn, the oldest first
	scoped          map[string]*list.List // of *conn, by the id of the key
	keyed           int                   // connections in scoped
}

// connState is what a connLimiter knows of a connection; the mutex of that guards it.
type connState struct {
	in     *list.List // nil outside all bounds, and once it is closed
	at     *list.Element
	key    string      // id of the key that it showed last
	unbind func() bool // stops waiting for the end of that key
	idle   bool        // between two requests
	ended  bool        // its key has ended: it is closed once it is idle
	closed bool
}

func newConnLimiter(most int) *connLimiter {
	return &connLimiter{most: most, unauthenticated: list.New(), scoped: map[string]*list.List{}}
}

// add takes in a connection that has shown nothing.
func (l *connLimiter) add(one *conn) {
	l.mu.Lock()
	one.in, one.at = l.unauthenticated, l.unauthenticated.PushBack(one)
	var gone *conn
	if l.unauthenticated.Len() > l.most {
		gone, _ = l.unauthenticated.Front().Value.(*conn)
	}
	l.mu.Unlock()
	closeConn(gone)
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
	closeConn(gone)
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
	for at := worst.Front(); at != nil; at = at.Next() {
		if idle, _ := at.Value.(*conn); idle.idle {
			return idle
		}
	}
	oldest, _ := worst.Front().Value.(*conn)
	return oldest
}

// endKey closes a connection whose key has ended, unless it has shown another one.
func (l *connLimiter) endKey(one *conn, id string) {
	l.mu.Lock()
	one.ended = one.ended || one.key == id
	over := one.ended && one.idle
	l.mu.Unlock()
	if over {
		closeConn(one)
	}
}

// setState notes a change of a connection's state. net/http reports it after the answer was
// written.
func (l *connLimiter) setState(one *conn, state http.ConnState) {
	l.mu.Lock()
	one.idle = state == http.StateIdle
	over := one.ended && one.idle
	l.mu.Unlock()
	if over {
		closeConn(one)
	}
}

// forget forgets a connection that is closed. It may be called again.
func (l *connLimiter) forget(one *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.closed = true
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
	if one.in != l.unauthenticated {
		l.keyed--
		if one.in.Len() == 0 {
			delete(l.scoped, one.key)
		}
	}
	one.in = nil
}

// closeConn closes a connection; its handler, if there is one, finds out.
func closeConn(one *conn) {
	if one != nil {
		_ = one.Close()
	}
}
