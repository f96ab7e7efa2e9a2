package rpc

import "sync"

// DrainGroup counts work under way and can be closed: then no more begins. It is safe for
// concurrent use.
type DrainGroup struct {
	closing chan struct{} // closed by Close
	empty   chan struct{} // closed when the group is closed and nothing is under way

	mu      sync.Mutex // guards what follows
	running int
	closed  bool
}

// NewDrainGroup returns an open group without work.
func NewDrainGroup() *DrainGroup {
	return &DrainGroup{closing: make(chan struct{}), empty: make(chan struct{})}
}

// Enter counts one more piece of work, and reports whether the group was open. If it was,
// Leave must follow.
func (g *DrainGroup) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running++
	return true
}

// Leave ends what Enter began.
func (g *DrainGroup) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.closed && g.running == 0 {
		close(g.empty)
	}
}

// Close closes the group. Closing it again changes nothing.
func (g *DrainGroup) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	close(g.closing)
	if g.running == 0 {
		close(g.empty)
	}
}

// Closed reports whether the group was closed.
func (g *DrainGroup) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Closing is closed when the group is.
func (g *DrainGroup) Closing() <-chan struct{} { return g.closing }

// Empty is closed when the group is closed and nothing is under way.
func (g *DrainGroup) Empty() <-chan struct{} { return g.empty }
