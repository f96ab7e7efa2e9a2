package bridge

import "sync"

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
