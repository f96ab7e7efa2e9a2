package supervisor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"nexus.internal/protocol"
)

// This file is the life of a turn.

// admit finds the turn of that id, or makes a new one, which is to be recorded and
// entered then. No turn of that id is being recorded.
func (s *agentState) admit(p protocol.Prompt, digest [sha256.Size]byte, o PromptOptions) (t *Turn, fresh bool, err error) {
	if s.closed != nil {
		return nil, false, s.closed
	}
	if t := s.turns.known.find(p.ID); t != nil {
		if t.digest != digest {
			return nil, false, ErrTurnConflict
		}
		s.agent.sup.count.repeats.Add(1)
		return t, false, nil
	}
	switch {
	case s.state == Failed:
		return nil, false, s.failed()
	case o.WhenBusy == Reject && s.turns.occupied():
		return nil, false, ErrBusy
	case o.WhenBusy != Next:
		if err := s.turns.room(o.Limited, s.agent.spec.QueueLimit); err != nil {
			return nil, false, err
		}
	}
	t = s.newTurn(p, digest, o)
	if err := s.reserve(t); err != nil {
		return nil, false, err
	}
	s.turns.recording = append(s.turns.recording, t)
	s.agent.work.Add(1) // until it is entered: the records stay open
	return t, true, nil
}

// enter takes a turn that has just been recorded. Whatever happened meanwhile, it is accepted.
func (s *agentState) enter(ctx context.Context, t *Turn, o PromptOptions) {
	s.turns.known.add(t)
	s.agent.sup.count.prompts.Add(1)
	t.beginSpan(ctx)
	switch {
	case s.closed != nil:
		s.finish(t, Cancelled, fmt.Errorf("%w: %w", ErrAborted, s.closed))
	case s.state == Failed:
		s.finish(t, Crashed, s.failed())
	case o.WhenBusy == Steer:
		s.turns.enqueueFirst(t)
		if s.turns.current != nil {
			s.abort(s.turns.current, errSteered)
		}
	case o.WhenBusy == Next:
		s.turns.holder = nil
		s.turns.enqueueFirst(t)
	default:
		s.turns.enqueue(t)
	}
	s.wakeUp()
	s.next()
	if o.Check != nil { // not before: what begins at once needs none
		t.check, t.asker = o.Check, ctx
	}
}

// next begins the oldest waiting turn if the child is free.
func (s *agentState) next() {
	if s.state == Busy && s.turns.current == nil && s.inc.lost == "" {
		s.state = s.state.move(Ready)
	}
	if !s.free() || s.turns.first() == nil {
		return
	}
	if t, inc := s.turns.first(), s.inc; t.check == nil {
		s.begin(t)
	} else if !t.checking {
		t.checking = true
		s.agent.work.Go(func() { s.agent.checkWaited(t, inc) })
	}
}

func (s *agentState) free() bool {
	return s.state == Ready && s.inc.lost == "" && s.turns.holder == nil
}

// checkWaited asks whether a turn that had to wait may begin, and begins it if so. If
// it could not begin any more, or its process has ended meanwhile, it is asked again
// when it could.
func (a *Agent) checkWaited(t *Turn, inc *incarnation) {
	err := t.check.CheckTurn(t.asker)
	a.update(func(s *agentState) []effect {
		t.checking = false
		switch {
		case t.ended:
		case !s.free() || s.inc != inc || s.turns.first() != t:
			s.next()
		case err != nil:
			s.turns.remove(t)
			s.finish(t, Erred, err)
		default:
			s.begin(t)
		}
		return s.here()
	})
}

// begin begins the oldest waiting turn.
func (s *agentState) begin(t *Turn) {
	s.turns.begin()
	s.agent.sup.activity.begun()
	s.state = s.state.move(Busy)
	t.begin(s.inc.number)
	s.agent.publish("turn_start", turnStartEvent(t.id, t.attempt))
	s.inc.enqueue(t.prompt)
	if !t.repeatable() {
		t.drop(&s.agent.sup.budget)
	}
	if t.limit > 0 {
		t.deadline = time.AfterFunc(t.limit, func() {
			s.agent.update(func(s *agentState) []effect {
				if s.turns.current == t {
					s.abort(t, t.late)
				}
				return s.elsewhere()
			})
		})
	}
}

// retry puts the running turn, whose process has crashed, back to be sent once
// more; false if that is not to be.
func (s *agentState) retry(t *Turn) bool {
	if s.closed != nil || !t.repeatable() || t.reason != nil || t.end != nil {
		return false
	}
	s.agent.sup.count.retries.Add(1)
	t.stopTimers()
	if t.limit > 0 {
		t.limit = max(t.limit-time.Since(t.began), time.Nanosecond)
	}
	s.turns.retry()
	s.agent.sup.activity.ended(s.agent)
	return true
}

// abort asks the child to end the running turn. A child that does not within
// the grace is given up. The first reason holds. What the turn asked of other
// agents is cancelled with it.
func (s *agentState) abort(t *Turn, reason error) {
	if t.reason != nil || t.ended {
		return
	}
	t.reason = reason
	inc := s.inc
	inc.host.end(t)
	inc.enqueue(protocol.Abort{ID: s.agent.sup.nextID()})
	grace := s.agent.spec.AbortGrace
	t.abort = time.AfterFunc(grace, func() {
		s.agent.update(func(s *agentState) []effect {
			if s.turns.running() == t && s.inc == inc {
				if e, ok := errors.AsType[*TurnLimitError](reason); ok {
					inc.limit = e.Limit()
				}
				s.markLost(inc, ReasonCancel, fmt.Sprintf("cancel not honoured in %s", grace))
			}
			return nil
		})
	})
}

// finish ends a turn. It is notified by the goroutine that claims that: see due.
func (s *agentState) finish(t *Turn, o Outcome, err error) {
	t.stopTimers()
	t.ended = true
	t.result = Result{
		TurnID: t.id, Outcome: o, Text: string(t.text), Truncated: t.truncated,
		Incarnation: t.incarnation, Attempt: t.attempt, Err: err,
	}
	if t.attempt > 0 {
		t.result.Ran = time.Since(t.first)
	}
	if t.end != nil {
		t.result.Usage, t.result.StopReason = t.end.Usage, t.end.StopReason
	}
	t.text = nil
	t.finishSpan()
	t.drop(&s.agent.sup.budget)
	if s.turns.current == t {
		s.agent.sup.activity.ended(s.agent)
		s.inc.host.end(t)
		s.inc.cancelPermissions(func(r pendingPermission) bool { return r.TurnID == t.id })
	}
	s.turns.finished.add(t)
}

// notified ends the wait for a turn whose outcome is recorded: its last event, its
// result, its waiters, in this order, and then the next turn.
func (s *agentState) notified(t *Turn) {
	s.turns.notified(t)
	if t.hold {
		s.turns.holder = t
	}
	if t.result.Outcome != "" {
		s.agent.publish("turn_end", turnEndEvent(t.id, t.result.Outcome, t.result.Err))
		s.agent.sup.count.outcome(t.result.Outcome).Add(1)
	}
	close(t.done)
	s.next()
}

func (s *agentState) failQueue(o Outcome, err error) {
	for _, t := range s.turns.removeAll() {
		s.finish(t, o, err)
	}
}
