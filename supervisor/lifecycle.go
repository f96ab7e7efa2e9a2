package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// This file is the life of an agent: what its incarnations make of its state.

// setState moves to next and tells subscribers, except for the moves between
// Ready and Busy, which turn_start and turn_end tell.
func (s *agentState) setState(next State, reason string) {
	s.state = s.state.move(next)
	s.agent.log.Debug("state", zap.Stringer("state", next), zap.String("reason", reason))
	e := protocol.AgentState{State: next.String(), Incarnation: s.incarnations, Reason: text(reason)}
	s.agent.publish(e.Name(), protocol.EncodeEvent(e))
}

func (s *agentState) failed() error { return fmt.Errorf("%w: %s", ErrFailed, s.lastError) }

// wakeUp starts a stopped agent that has something to do.
func (s *agentState) wakeUp() {
	if s.state != Stopped || s.closed != nil {
		return
	}
	s.shutdown = false
	s.launch(context.Background(), false)
}

// launch begins the next incarnation. ctx bounds the launch alone.
func (s *agentState) launch(ctx context.Context, again bool) *incarnation {
	ctx, cancel := context.WithCancel(ctx)
	s.incarnations++
	inc := &incarnation{
		agent: s.agent, number: s.incarnations, again: again, cancel: cancel,
		settled: make(chan struct{}), gone: make(chan struct{}),
	}
	s.inc = inc
	s.calls.restart()
	why := ""
	if s.incarnations == 1 {
		why = s.agent.origin.why()
	}
	s.setState(Starting, why)
	s.agent.work.Go(func() { s.agent.live(ctx, inc) })
	return inc
}

// unlaunched accounts for an incarnation that did not become ready.
func (s *agentState) unlaunched(inc *incarnation, err error) {
	s.agent.sup.count.launchFailures.Add(1)
	inc.err = err
	s.agent.log.Warn("launch", zap.Uint64("incarnation", inc.number), zap.Error(err))
	switch {
	case inc.stopped != nil:
		inc.err = inc.stopped
		s.rest(inc)
	case !s.ran:
		s.lastError = err.Error()
		s.inc = nil
		s.closed = ErrNotFound
		s.setState(Stopped, err.Error())
		s.failQueue(Erred, err)
		s.calls.fail(err)
	case starved(err):
		s.resourceBackoff(err)
	default:
		crash := &CrashError{Incarnation: inc.number, Reason: ReasonStart, Cause: err.Error()}
		if e, ok := errors.AsType[*StartError](err); ok {
			crash.Cause, crash.Exit = e.Err.Error(), e.Exit
		}
		crash.Session, _ = errors.AsType[*SessionError](err)
		crash.Dir, _ = errors.AsType[*DirError](err)
		if _, ok := errors.AsType[*HandshakeError](err); ok {
			crash.Reason = ReasonProtocol
		}
		s.crashed(inc, crash)
		s.lastError = err.Error() // with its stderr: what a restart complains of does not go away
	}
	close(inc.gone)
	close(inc.settled)
}

// launched accounts for an incarnation that is ready.
func (s *agentState) launched(inc *incarnation, conn Conn) {
	defer close(inc.settled)
	inc.conn = conn
	s.ran = true
	s.backoff.ready()
	if inc.stopped != nil { // while it was launched
		inc.err = inc.stopped
		s.agent.work.Go(func() { conn.Stop(context.Background()) })
		return
	}
	if inc.again {
		s.restarts++
		s.lastRestart = s.lastCrash
		s.agent.sup.count.restarts.add(s.lastCrash)
	}
	s.agent.log.Info("agent ready", zap.Uint64("incarnation", inc.number), zap.Int("pid", conn.PID()))
	s.setState(Ready, "")
	if s.narrowed.holds != nil { // its session may have more
		inc.enqueue(s.narrowed.command(s.agent.sup.nextID()))
	}
	inc.tellOutputWanted(s)
	s.sendCalls()
	s.watch(inc)
	s.next()
}

// exited accounts for the end of an incarnation's process: the turn that ran ends, or is
// put back. It returns what the crash is, if nobody asked for that end.
func (s *agentState) exited(inc *incarnation, exit Exit) *CrashError {
	s.agent.sup.count.cpu.Add(int64(inc.conn.Usage().CPU))
	inc.cancelPending()
	inc.cancelPermissions(func(pendingPermission) bool { return true })
	crash := &CrashError{Incarnation: inc.number, Reason: inc.lost, Cause: inc.cause, Exit: &exit}
	if inc.lost == "" {
		crash.Reason, crash.Cause = ReasonExit, "process ended"
	}
	switch {
	case exit.Limit != "": // whatever else was seen comes of it
		crash.Reason = ReasonLimit
	case crash.Reason == ReasonExit && exit.Signal != "":
		crash.Reason = ReasonSignal
	}
	exit.Limit = cmp.Or(exit.Limit, inc.limit)
	inc.lost, inc.exited = crash.Reason, true // so that nothing begins
	if t := s.turns.running(); t != nil && inc.stopped != nil {
		s.finish(t, Cancelled, fmt.Errorf("%w: %w", ErrAborted, inc.stopped))
	} else if t != nil && !s.retry(t) {
		s.finish(t, Crashed, crash)
	}
	return crash
}

// rest puts an agent whose incarnation we stopped to rest, or starts it again
// if something was asked of it meanwhile.
func (s *agentState) rest(inc *incarnation) {
	s.calls.failSent(inc.stopped)
	s.inc = nil
	s.setState(Stopped, "")
	if len(s.turns.waiting) > 0 || len(s.calls.unsent) > 0 {
		s.wakeUp()
	}
}

// resourceBackoff decides on what follows a restart for which the server lacked something.
// It is tried again for as long as it takes, and does not count as a crash. What
// waits goes on waiting for starvePatience in all, and then gets the error.
func (s *agentState) resourceBackoff(err error) {
	s.lastError, s.lastCrash = err.Error(), ReasonStart
	s.inc = nil
	delay, late := s.backoff.lacked(s.agent.sup.spread())
	s.restartAfter(delay, err.Error())
	if late {
		s.failQueue(Erred, err)
		s.calls.fail(err)
	}
}

// restartAfter lets the next incarnation come after a delay.
func (s *agentState) restartAfter(delay time.Duration, reason string) {
	s.setState(Backoff, reason)
	s.backoff.wait(delay, func() {
		s.agent.update(func(s *agentState) []effect {
			if s.state == Backoff && s.closed == nil {
				s.launch(context.Background(), true)
			}
			return nil
		})
	})
}

// crashed fails what the incarnation owed and decides on what follows. What
// waits goes on waiting, unless the agent has failed.
func (s *agentState) crashed(inc *incarnation, crash *CrashError) {
	s.agent.sup.count.crashes.add(crash.Reason)
	s.lastError, s.lastCrash = crash.Error(), crash.Reason
	about := []zap.Field{
		zap.Uint64("incarnation", inc.number), zap.String("reason", string(crash.Reason)), zap.String("cause", crash.Cause),
	}
	if crash.Exit != nil {
		about = append(about, zap.Stringer("exit", crash.Exit), zap.String("stderr", crash.Exit.Stderr))
	}
	s.agent.log.Warn("agent crashed", about...)
	s.calls.failSent(crash)
	s.inc = nil
	delay, again := s.backoff.crashed(crash.Reason == ReasonStart, s.agent.sup.spread())
	if !again || crash.Reason == ReasonProtocol || crash.Dir != nil {
		s.setState(Failed, crash.Error())
		s.failQueue(Crashed, crash)
		s.calls.fail(crash)
		return
	}
	s.restartAfter(delay, crash.Error())
}

// stop begins the end of whatever the agent does, for the given reason. The
// channel is closed when nothing is left of the incarnation.
func (s *agentState) stop(reason error) <-chan struct{} {
	s.failQueue(Cancelled, fmt.Errorf("%w: %w", ErrAborted, reason))
	s.calls.failUnsent(reason)
	inc := s.inc
	if inc == nil {
		s.backoff.stop()
		if s.state != Stopped {
			s.backoff.forgive()
			s.setState(Stopped, "")
		}
		nothing := make(chan struct{})
		close(nothing)
		return nothing
	}
	if inc.stopped != nil {
		return inc.gone
	}
	inc.stopped = reason
	inc.cancelPending()
	if s.state != Stopping {
		s.setState(Stopping, "")
	}
	if inc.conn == nil {
		inc.cancel()
	} else {
		s.agent.work.Go(func() { inc.conn.Stop(context.Background()) })
	}
	return inc.gone
}

// markLost gives an incarnation up: it is killed, and counts as a crash.
func (s *agentState) markLost(inc *incarnation, reason Reason, cause string) {
	if inc.lost != "" || inc != s.inc {
		return
	}
	inc.lost, inc.cause = reason, cause
	inc.cancelPending()
	if s.state != Stopping {
		s.setState(Stopping, cause)
	}
	s.agent.work.Go(func() { inc.conn.Stop(KillNow) })
}
