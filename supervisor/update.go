package supervisor

import (
	"errors"
	"os"

	"nexus.internal/protocol"
)

// agentState is what changes about an agent. Its methods are called within
// [Agent.update], and block nowhere.
type agentState struct {
	agent *Agent // whose state it is: for what does not change, and to start goroutines

	state        State
	inc          *incarnation // nil unless Starting, Ready, Busy or Stopping
	incarnations uint64
	restarts     uint64
	ran          bool // an incarnation was ready once, so the next one goes on with what is saved
	turns        turnQueue
	calls        calls
	backoff      backoff
	limits       Limits  // of the next process and turn
	maxAgents    *uint64 // as Spec.MaxAgents
	session      *protocol.SessionUpdate
	narrowed     unsaved
	lastError    string
	lastCrash    Reason // "" before the first
	lastRestart  Reason // what the last restart came after
	shutdown     bool   // Shutdown was the last thing asked for
	closed       error  // why nothing more is accepted; nil while it is
	removing     bool   // close was called
}

// effect is something that an update leads to and that may block.
type effect func()

// update changes the agent's state: it is the only place that locks it. The effects that
// f returns run after that, in order, unlocked, in the caller's goroutine. f must neither
// block nor call update.
func (a *Agent) update(f func(s *agentState) []effect) {
	for _, run := range a.locked(f) {
		run()
	}
}

// locked is the part of update that holds the mutex, also if f panics.
func (a *Agent) locked(f func(s *agentState) []effect) []effect {
	a.stateMu.Lock()
	defer a.stateMu.Unlock()
	return f(&a.guarded)
}

// due claims the oldest thing to be done about the state that may block and that nobody
// is at yet: to notify of turns that have finished, or to write to the child. Nil if there
// is none.
func (s *agentState) due() effect {
	a, inc := s.agent, s.inc
	if t, ok := s.turns.finished.claim(); ok {
		a.work.Add(1) // the records are closed after that
		return func() { a.notify(t) }
	}
	if inc == nil {
		return nil
	}
	if c, ok := inc.sendQueue.claim(); ok {
		return func() { a.write(inc, c) }
	}
	return nil
}

// here does what is due before update returns: the caller may wait for the disk and for
// the child to read.
func (s *agentState) here() []effect {
	first := s.due()
	if first == nil {
		return nil
	}
	return []effect{func() { s.agent.flush(first) }}
}

// elsewhere does what is due in a goroutine of the agent's, for a caller that must wait
// neither for the disk nor for a child that does not read.
func (s *agentState) elsewhere() []effect {
	first, a := s.due(), s.agent
	if first == nil {
		return nil
	}
	a.work.Add(1)
	return []effect{func() {
		go func() {
			defer a.work.Done()
			a.flush(first)
		}()
	}}
}

// byReader is what the reader of the child does: it notifies of the turn's end itself, so
// that nothing of the next turn is read before, and leaves the rest to others.
func (s *agentState) byReader() []effect {
	t, ok := s.turns.finished.claim()
	if !ok {
		return s.elsewhere()
	}
	a := s.agent
	a.work.Add(1)
	return []effect{func() { a.notify(t) }, func() { a.update((*agentState).elsewhere) }}
}

// flush does what is due until nothing is.
func (a *Agent) flush(next effect) {
	for next != nil {
		next()
		a.update(func(s *agentState) []effect {
			next = s.due()
			return nil
		})
	}
}

// notify records the outcomes of finished turns, and notifies of each once it is
// recorded: a slow disk keeps nobody from the agent but who waits for an outcome. One
// goroutine at a time is in it, by its claim, so they keep their order.
func (a *Agent) notify(t *Turn) {
	defer a.work.Done()
	for ok := true; ok; {
		err := settle(a, t)
		a.update(func(s *agentState) []effect {
			if err != nil {
				t.result = Result{TurnID: t.id, Err: err}
			}
			s.notified(t)
			t, ok = s.turns.finished.next()
			return nil
		})
	}
}

// settle records the outcome of a turn. One that only ended as another machine has the agent has none here, and no record of one either: if that machine never began with the
// agent, and this one gets it back, the turn has crashed.
func settle(a *Agent, t *Turn) error {
	if errors.Is(t.result.Err, ErrMoved) {
		return ErrMoved
	}
	a.records.End(t.result)
	return a.records.Settle()
}

// write writes the commands of the send queue. One goroutine at a time is in it, by its
// claim, so they keep their order.
func (a *Agent) write(inc *incarnation, c protocol.Command) {
	for ok := true; ok; {
		err := inc.conn.Send(c)
		a.update(func(s *agentState) []effect {
			inc.host.read(c)
			if err != nil {
				s.unwritten(inc, c, err)
			}
			c, ok = inc.sendQueue.next()
			return nil
		})
	}
}

// unwritten accounts for a command that was not written: what it was for ends, if it is
// the command that cannot be written, else the incarnation.
func (s *agentState) unwritten(inc *incarnation, c protocol.Command, err error) {
	e, ok := errors.AsType[*CommandError](err)
	if !ok {
		reason, cause := ReasonExit, "process ended" // or it closed its stdin: nothing more is to be had of it
		if errors.Is(err, os.ErrDeadlineExceeded) {
			reason, cause = ReasonStdin, err.Error()
		}
		s.markLost(inc, reason, cause)
		return
	}
	if t := s.turns.running(); t != nil && t.id == c.Ident() && c.Name() == "prompt" {
		s.finish(t, Erred, e)
	} else if s.calls.answered(c.Ident(), answer{err: e}) {
		s.sendCalls()
	} else if r, ok := c.(protocol.HostResult); ok && r.Error == nil {
		inc.enqueue(inc.hostResult(r.CallID, nil, &protocol.HostError{Code: CodeRefused, Message: "the answer is too large: " + e.Error()}))
	}
}
