package bridge

import "sync"

// gate counts what is inside and can be closed: then nothing more gets in.
type gate struct {
	closing chan struct{} // closed by close
	empty   chan struct{} // closed when the gate is closed and nothing is inside

	mu     sync.Mutex // guards what follows
	inside int
	closed bool
}

func newGate() *gate {
	return &gate{closing: make(chan struct{}), empty: make(chan struct{})}
}

// enter reports whether the gate was open. If it was, leave must follow.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// close closes the gate. Closing it again changes nothing.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	close(g.closing)
	if g.inside == 0 {
		close(g.empty)
	}
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// keyedMutex is a mutex for each name. A name that nobody holds costs nothing.
// The zero value is ready.
type keyedMutex struct {
	mu   sync.Mutex // guards held and its counts
	held map[string]*keyedLock
}

type keyedLock struct {
	mu   sync.Mutex
	refs int // holders and waiters
}

// tryLock is lock for a name that nobody holds or waits for; ok is false for another.
func (k *keyedMutex) tryLock(name string) (unlock func(), ok bool) {
	k.mu.Lock()
	if k.held[name] != nil {
		k.mu.Unlock()
		return nil, false
	}
	return k.enter(name), true
}

// lock waits for the name and returns what lets go of it.
func (k *keyedMutex) lock(name string) (unlock func()) {
	k.mu.Lock()
	return k.enter(name)
}

// enter is lock; mu is held, and given up.
func (k *keyedMutex) enter(name string) (unlock func()) {
	if k.held == nil {
		k.held = map[string]*keyedLock{}
	}
	l := k.held[name]
	if l == nil {
		l = new(keyedLock)
		k.held[name] = l
	}
	l.refs++
	k.mu.Unlock()

	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.held, name)
		}
	}
}
