package agents

import (
	"sync"
)

// KeyLock is a mutex for each name. A name that nobody holds costs nothing.
// The zero value is ready.
type KeyLock struct {
	mu   sync.Mutex // guards held and its counts
	held map[string]*heldKey
}

type heldKey struct {
	mu   sync.Mutex
	refs int // holders and waiters
}

// tryLock is lock for a name that nobody holds or waits for; ok is false for another.
func (k *KeyLock) tryLock(name string) (unlock func(), ok bool) {
	k.mu.Lock()
	if k.held[name] != nil {
		k.mu.Unlock()
		return nil, false
	}
	return k.enter(name), true
}

// Lock waits for the name and returns what lets go of it.
func (k *KeyLock) Lock(name string) (unlock func()) {
	k.mu.Lock()
	return k.enter(name)
}

// enter is lock; mu is held, and given up.
func (k *KeyLock) enter(name string) (unlock func()) {
	if k.held == nil {
		k.held = map[string]*heldKey{}
	}
	l := k.held[name]
	if l == nil {
		l = new(heldKey)
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

// Waiting is how many hold a name or wait for it.
func (k *KeyLock) Waiting(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.held[name]; l != nil {
		return l.refs
	}
	return 0
}
