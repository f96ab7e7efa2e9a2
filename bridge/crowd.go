package bridge

import (
	"container/list"
	"sync"
)

// crowd is the connections that have shown no key yet. It is bounded: where there
// are too many, the oldest loses its place and is closed, so that they never keep
// anybody who has a key from connecting.
type crowd struct {
	most int

	mu    sync.Mutex // guards what follows
	conns *list.List // of *conn, the oldest first
	place map[*conn]*list.Element
}

func newCrowd(most int) *crowd {
	return &crowd{most: most, conns: list.New(), place: map[*conn]*list.Element{}}
}

func (c *crowd) enter(one *conn) {
	if oldest := c.add(one); oldest != nil {
		_ = oldest.Close() // its handler, if there is one, finds out
	}
}

// add returns who must go for that, or nil.
func (c *crowd) add(one *conn) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place[one] = c.conns.PushBack(one)
	if c.conns.Len() <= c.most {
		return nil
	}
	oldest, _ := c.conns.Front().Value.(*conn)
	return oldest
}

// leave takes a connection out of the crowd; one that is not in it stays so.
func (c *crowd) leave(one *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.place[one]; at != nil {
		c.conns.Remove(at)
		delete(c.place, one)
	}
}
