package agents

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// The name of the last session is written when it changes, lastBurst times, and
// then not until a second has passed: a person never sees that, and a program
// that talks to many agents in turn does not write with each message.
const (
	lastDelay = time.Second
	lastBurst = 8
)

// lastUsed is which session a person used last: one that no agent began.
type lastUsed struct {
	sessions *sessions.Catalogue
	log      *zap.Logger

	mu      sync.Mutex // guards all below
	id      string     // "" for none
	written string     // what the home says
	at      time.Time  // when that was written
	burst   int        // writes that may follow at once
	timer   *time.Timer
	writing sync.WaitGroup // the timer's goroutine
	over    bool
}

func (l *lastUsed) is(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id == id
}

// NoteUsed says that a person talks to the agent. The home says so at once, or within
// a second.
func (r *Registry) NoteUsed(a *supervisor.Agent) {
	id := a.ID()
	if r.last.is(id) || a.Info().Labels.Provenance != "" {
		return
	}
	r.SetLast(id)
}

// SetLast says which session a person used last.
func (r *Registry) SetLast(id string) {
	l := &r.last
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.id
	l.id = id
	if api.IsTemp(before) && before != id {
		r.removeLast(before)
	}
	wait := lastDelay - time.Since(l.at)
	switch {
	case wait <= 0 || l.over:
		l.burst = lastBurst
		l.write()
	case l.burst > 1:
		l.burst--
		l.write()
	case l.timer == nil:
		l.writing.Add(1)
		l.timer = time.AfterFunc(wait, func() {
			defer l.writing.Done()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.timer = nil
			l.write()
		})
	}
}

// removeLast removes the session of a temporary agent that is gone and is not the
// last one any more. While something is done with it, a rename for one, it stays: if
// it is still there then, it is removed with the name's next use or server.
func (r *Registry) removeLast(id string) {
	unlock, free := r.locks.tryLock(id)
	if !free {
		return
	}
	defer unlock()
	if _, err := r.o.Supervisor.Agent(id); err == nil {
		return
	}
	if err := r.o.Sessions.RemoveTemp(id); err != nil {
		r.log.Warn("remove the session that was the last one", zap.String("agent", id), zap.Error(err))
	}
	release(context.Background(), r, id)
}

// write puts the name into the home. l.mu is held.
func (l *lastUsed) write() {
	if l.written == l.id {
		return
	}
	if err := l.sessions.SetLast(l.id); err != nil {
		l.log.Warn("remember the last session", zap.Error(err))
	}
	l.written, l.at = l.id, time.Now()
}

// Close writes what waits, and joins the timer.
func (r *Registry) Close() {
	l := &r.last
	l.mu.Lock()
	l.over = true
	if l.timer != nil && l.timer.Stop() {
		l.writing.Done()
	}
	l.timer = nil
	l.write()
	l.mu.Unlock()
	l.writing.Wait()
}

// Last is the session that a person used last; "" for none.
func (r *Registry) Last() string {
	r.last.mu.Lock()
	defer r.last.mu.Unlock()
	return r.last.id
}
