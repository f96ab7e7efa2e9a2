package bridge

import (
	"container/list"
	"context"
	"net/http"
	"sync"

	"nexus.internal/bridge/auth"
)

// crowd is the connections of a server by what they have shown: those without a key,
// those of each scoped key, and those of full keys, which alone are not bounded. What
// is left beside the bounds is for these and for files and children. It is safe for
// concurrent use.
type crowd struct {
	// most is how many strangers there may be, the oldest of which is closed for
	// another one, and how many connections of all scoped keys together, where the key
	// with the most of them loses one.
	most int

	mu        sync.Mutex // guards what follows, and standing of each conn
	strangers *list.List // of *conn, the oldest first
	scoped    map[string]*list.List
	keyed     int // in scoped
}

// standing is what a crowd knows of a connection; the crowd's mutex guards it.
type standing struct {
	in     *list.List // nil outside all bounds, and once it is closed
	at     *list.Element
	key    string // id of the key that it showed last
	unbind func() bool
	idle   bool // between two requests
	ended  bool // its key has ended: it is closed once it is idle
	closed bool
}

func newCrowd(most int) *crowd {
	return &crowd{most: most, strangers: list.New(), scoped: map[string]*list.List{}}
}

// enter takes in a connection that has shown nothing.
func (c *crowd) enter(one *conn) {
	c.mu.Lock()
	one.in, one.at = c.strangers, c.strangers.PushBack(one)
	var gone *conn
	if c.strangers.Len() > c.most {
		gone, _ = c.strangers.Front().Value.(*conn)
	}
	c.mu.Unlock()
	shut(gone)
}

// show notes that a connection has shown a good key, whose it is from now on. It is
// closed when valid ends, after the request that is under way.
func (c *crowd) show(one *conn, g auth.Grant, valid context.Context) {
	c.mu.Lock()
	if one.closed || one.key == g.ID && !one.ended {
		c.mu.Unlock()
		return
	}
	c.remove(one)
	one.key, one.ended = g.ID, false
	one.unbind = context.AfterFunc(valid, func() { c.end(one, g.ID) })
	var gone *conn
	if g.Scope != auth.ScopeFull {
		gone = c.keep(one, g.ID)
	}
	c.mu.Unlock()
	shut(gone)
}

// keep puts a connection among those of a scoped key, and returns who must go for
// that, or nil. mu is held.
func (c *crowd) keep(one *conn, id string) *conn {
	own := c.scoped[id]
	if own == nil {
		own = list.New()
		c.scoped[id] = own
	}
	one.in, one.at = own, own.PushBack(one)
	if c.keyed++; c.keyed <= c.most {
		return nil
	}
	worst := own
	for _, other := range c.scoped {
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

// end closes a connection whose key has ended, unless it has shown another one.
func (c *crowd) end(one *conn, id string) {
	c.mu.Lock()
	one.ended = one.ended || one.key == id
	over := one.ended && one.idle
	c.mu.Unlock()
	if over {
		shut(one)
	}
}

// turn is told of each change of a connection by net/http, after what was answered
// has been written.
func (c *crowd) turn(one *conn, state http.ConnState) {
	c.mu.Lock()
	one.idle = state == http.StateIdle
	over := one.ended && one.idle
	c.mu.Unlock()
	if over {
		shut(one)
	}
}

// leave forgets a connection that is closed. It may be called again.
func (c *crowd) leave(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.closed = true
	c.remove(one)
}

// remove takes a connection out of where it stands. mu is held.
func (c *crowd) remove(one *conn) {
	if one.unbind != nil {
		one.unbind()
		one.unbind = nil
	}
	if one.in == nil {
		return
	}
	one.in.Remove(one.at)
	if one.in != c.strangers {
		c.keyed--
		if one.in.Len() == 0 {
			delete(c.scoped, one.key)
		}
	}
	one.in = nil
}

// shut closes a connection; its handler, if there is one, finds out.
func shut(one *conn) {
	if one != nil {
		_ = one.Close()
	}
}
