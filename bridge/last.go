package bridge

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
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
	mu      sync.Mutex // guards all below
	id      string     // "" for none
	written string     // what the home says
	at      time.Time  // when that was written
	burst   int        // writes that may follow at once
	timer   *time.Timer
	writing sync.WaitGroup // the timer's goroutine
	over    bool
}

// is reports whether id is the last session that a person used.
func (l *lastUsed) is(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id == id
}

// used says that a person talks to the agent. The home says so at once, or within
// a second.
func (s *Server) used(a *supervisor.Agent) {
	id := a.ID()
	if s.last.is(id) || a.Info().Labels[labelProvenance] != "" {
		return
	}
	s.setLast(id)
}

func (s *Server) setLast(id string) {
	l := &s.last
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.id
	l.id = id
	if api.IsTemp(before) && before != id {
		s.removeLast(before)
	}
	wait := lastDelay - time.Since(l.at)
	switch {
	case wait <= 0 || l.over:
		l.burst = lastBurst
		s.writeLast()
	case l.burst > 1:
		l.burst--
		s.writeLast()
	case l.timer == nil:
		l.writing.Add(1)
		l.timer = time.AfterFunc(wait, func() {
			defer l.writing.Done()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.timer = nil
			s.writeLast()
		})
	}
}

// removeLast removes the session of a temporary agent that is gone and is not the
// last one any more. While something is done with it, a rename for one, it stays: if
// it is still there then, it is removed with the name's next use or server.
func (s *Server) removeLast(id string) {
	unlock, free := s.locks.tryLock(id)
	if !free {
		return
	}
	defer unlock()
	if _, err := s.o.Supervisor.Agent(id); err == nil {
		return
	}
	if err := s.o.Sessions.RemoveTemp(id); err != nil {
		s.log.Warn("remove the session that was the last one", zap.String("agent", id), zap.Error(err))
	}
}

// writeLast puts the name into the home. s.last.mu is held.
func (s *Server) writeLast() {
	l := &s.last
	if l.written == l.id {
		return
	}
	if err := s.o.Sessions.SetLast(l.id); err != nil {
		s.log.Warn("remember the last session", zap.Error(err))
	}
	l.written, l.at = l.id, time.Now()
}

// endLast writes what waits, and joins the timer.
func (s *Server) endLast() {
	l := &s.last
	l.mu.Lock()
	l.over = true
	if l.timer != nil && l.timer.Stop() {
		l.writing.Done()
	}
	l.timer = nil
	s.writeLast()
	l.mu.Unlock()
	l.writing.Wait()
}
