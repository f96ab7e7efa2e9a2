package agents

import (
	"context"
	"sync"
)

// KeyLock is a mutex for each name. A name that nobody holds costs nothing.
// The zero value is ready.
type KeyLock struct {
	mu   sync.Mutex // guards held and its counts
	held map[string]*heldKey
}

type heldKey struct {
	turn chan struct{} // full while somebody holds the name
	refs int           // holders and waiters
}

// tryLock is Lock for a name that nobody holds or waits for; ok is false for another.
func (k *KeyLock) tryLock(name string) (unlock func(), ok bool) {
	k.mu.Lock()
	if k.held[name] != nil {
		k.mu.Unlock()
		return nil, false
	}
	l := k.enter(name)
	l.turn <- struct{}{} // nobody else knows of it
	k.mu.Unlock()
	return func() { k.leave(name, l, true) }, true
}

// Lock waits for the name and returns what lets go of it.
func (k *KeyLock) Lock(name string) (unlock func()) {
	unlock, _ = k.LockContext(context.Background(), name) // which does not end
	return unlock
}

// LockContext is Lock, but waits no longer than ctx; the error is that of ctx.
func (k *KeyLock) LockContext(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.enter(name)
	k.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
		return func() { k.leave(name, l, true) }, nil
	case <-ctx.Done():
		k.leave(name, l, false)
		return nil, ctx.Err()
	}
}

// enter counts one more who holds the name or waits for it. mu is held.
func (k *KeyLock) enter(name string) *heldKey {
	if k.held == nil {
		k.held = map[string]*heldKey{}
	}
	l := k.held[name]
	if l == nil {
		l = &heldKey{turn: make(chan struct{}, 1)}
		k.held[name] = l
	}
	l.refs++
	return l
}

// leave counts one less.
func (k *KeyLock) leave(name string, l *heldKey, holds bool) {
	if holds {
		<-l.turn
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.refs--; l.refs == 0 {
		delete(k.held, name)
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
