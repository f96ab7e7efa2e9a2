package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// incarnation is one run of an agent's child, from its launch until nothing of
// it is left. Its fields are guarded by the agent's mutex.
type incarnation struct {
	number  uint64
	again   bool               // it comes after a crash
	conn    Conn               // nil until launched
	cancel  context.CancelFunc // of the launch
	settled chan struct{}      // closed when the launch is over
	gone    chan struct{}      // closed when nothing is left
	err     error              // of the launch

	out     []protocol.Command // to be written, oldest first; pending and the one turn bound it
	writing bool               // somebody is writing out
	stopped error              // why we were asked to stop it, nil if nobody asked
	lost    Reason             // why we gave it up, "" if we did not
	cause   string             // the same in words
	limit   string             // that of a turn which it did not end, if we gave it up for that

	heartbeat heartbeat

	host        hostCalls
	permissions pendingPermissions
}

// starvePatience is how long what waits goes on waiting while the server lacks
// something for a restart.
const starvePatience = 10 * time.Second

// killNow is a context for Conn.Stop that leaves out the polite rungs.
var killNow = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// start launches the first incarnation.
func (a *Agent) start(ctx context.Context) *incarnation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.launch(ctx, false)
}

// wakeUp starts a stopped agent that has something to do.
func (a *Agent) wakeUp() {
	if a.state != Stopped || a.closed != nil {
		return
	}
	a.shutdown = false
	a.launch(context.Background(), false)
}

// launch begins the next incarnation. ctx bounds the launch alone.
func (a *Agent) launch(ctx context.Context, again bool) *incarnation {
	ctx, cancel := context.WithCancel(ctx)
	a.incarnations++
	inc := &incarnation{
		number: a.incarnations, again: again, cancel: cancel,
		settled: make(chan struct{}), gone: make(chan struct{}),
	}
	a.inc = inc
	a.calls.restart()
	a.setState(Starting, "")
	a.work.Go(func() { a.live(ctx, inc) })
	return inc
}

// live is the goroutine of one incarnation.
func (a *Agent) live(ctx context.Context, inc *incarnation) {
	conn, err := a.bringUp(ctx, inc)
	inc.cancel()
	if err != nil {
		a.unlaunched(inc, err)
		return
	}
	a.launched(inc, conn)
	for {
		f, err := conn.Recv()
		if err != nil {
			a.cutOff(inc, err)
			break
		}
		a.handle(inc, f)
	}
	a.ended(inc, conn.Stop(killNow))
}

// bringUp launches the child, once it may be.
func (a *Agent) bringUp(ctx context.Context, inc *incarnation) (Conn, error) {
	if inc.again {
		done, err := a.sup.restarts.begin(ctx)
		if err != nil {
			return nil, &StartError{Err: err}
		}
		defer done()
	}
	timeout := a.spec.StartTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready in %s", timeout))
	defer cancel()
	began := time.Now()
	conn, err := a.launcher.Launch(ctx, a.spec, a.ranBefore())
	if err == nil {
		a.sup.launched(time.Since(began))
	}
	return conn, err
}

func (a *Agent) ranBefore() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ran
}

// unlaunched accounts for an incarnation that did not become ready.
func (a *Agent) unlaunched(inc *incarnation, err error) {
	a.mu.Lock()
	defer a.releaseElsewhere()
	a.sup.count.launchFailures.Add(1)
	inc.err = err
	a.log.Warn("launch", zap.Uint64("incarnation", inc.number), zap.Error(err))
	switch {
	case inc.stopped != nil:
		inc.err = inc.stopped
		a.rest(inc)
	case !a.ran:
		a.lastError = err.Error()
		a.inc = nil
		a.closed = ErrNotFound
		a.setState(Stopped, err.Error())
		a.failQueue(Erred, err)
		a.calls.fail(err)
	case starved(err):
		a.starve(err)
	default:
		crash := &CrashError{Incarnation: inc.number, Reason: ReasonStart, Cause: err.Error()}
		if e, ok := errors.AsType[*StartError](err); ok {
			crash.Cause, crash.Exit = e.Err.Error(), e.Exit
		}
		crash.Session, _ = errors.AsType[*SessionError](err)
		if _, ok := errors.AsType[*HandshakeError](err); ok {
			crash.Reason = ReasonProtocol
		}
		a.crashed(inc, crash)
		a.lastError = err.Error() // with its stderr: what a restart complains of does not go away
	}
	close(inc.gone)
	close(inc.settled)
}

// launched accounts for an incarnation that is ready.
func (a *Agent) launched(inc *incarnation, conn Conn) {
	a.mu.Lock()
	defer a.releaseElsewhere()
	defer close(inc.settled)
	inc.conn = conn
	a.ran, a.starved = true, nil
	a.sup.count.launches.Add(1)
	if inc.stopped != nil { // while it was launched
		inc.err = inc.stopped
		a.work.Go(func() { conn.Stop(context.Background()) })
		return
	}
	if inc.again {
		a.restarts++
		a.lastRestart = a.lastCrash
		a.sup.count.restarts.add(a.lastCrash)
	}
	a.log.Info("agent ready", zap.Uint64("incarnation", inc.number), zap.Int("pid", conn.PID()))
	a.setState(Ready, "")
	a.renarrow(inc)
	a.sendCalls()
	a.watch(inc)
	a.next()
}

// cutOff accounts for the end of an incarnation's output.
func (a *Agent) cutOff(inc *incarnation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if inc.lost == "" && !errors.Is(err, io.EOF) {
		inc.lost, inc.cause = ReasonOutput, err.Error()
	}
}

// ended accounts for an incarnation of which nothing is left.
func (a *Agent) ended(inc *incarnation, exit Exit) {
	a.mu.Lock()
	defer a.releaseElsewhere()
	defer close(inc.gone)
	a.sup.count.cpu.Add(int64(inc.conn.Usage().CPU))
	a.quiet(inc)
	a.cancelPermissions(inc, func(pendingPermission) bool { return true })
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
	inc.lost = crash.Reason // so that nothing begins
	if t := a.turns.running(); t != nil && inc.stopped != nil {
		a.finish(t, Cancelled, fmt.Errorf("%w: %w", ErrAborted, inc.stopped))
	} else if t != nil && !a.again(t) {
		a.finish(t, Crashed, crash)
	}
	a.untilTold()
	if inc.stopped != nil {
		a.log.Info("agent stopped", zap.Uint64("incarnation", inc.number), zap.Stringer("exit", exit))
		a.rest(inc)
		return
	}
	a.crashed(inc, crash)
}

// rest puts an agent whose incarnation we stopped to rest, or starts it again
// if something was asked of it meanwhile.
func (a *Agent) rest(inc *incarnation) {
	a.calls.failSent(inc.stopped)
	a.inc = nil
	a.setState(Stopped, "")
	if len(a.turns.waiting) > 0 || len(a.calls.unsent) > 0 {
		a.wakeUp()
	}
}

// starve decides on what follows a restart for which the server lacked something.
// It is tried again for as long as it takes, and does not count as a crash. What
// waits goes on waiting for starvePatience in all, and is then told.
func (a *Agent) starve(err error) {
	a.lastError, a.lastCrash = err.Error(), ReasonStart
	a.inc = nil
	now := time.Now()
	a.starved = remember(a.starved, now)
	patient := a.spec.Policy
	patient.Limit = crashMemory
	delay, _ := patient.Next(a.starved, now, a.sup.spread())
	a.restartAfter(delay, err.Error())
	if now.Sub(a.starved[0]) >= starvePatience {
		a.failQueue(Erred, err)
		a.calls.fail(err)
	}
}

// remember adds a moment to the last ones.
func remember(moments []time.Time, now time.Time) []time.Time {
	return append(moments[max(0, len(moments)-crashMemory+1):], now)
}

// restartAfter lets the next incarnation come after a delay.
func (a *Agent) restartAfter(delay time.Duration, reason string) {
	a.setState(Backoff, reason)
	a.timer = time.AfterFunc(delay, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.state == Backoff && a.closed == nil {
			a.launch(context.Background(), true)
		}
	})
}

// crashed fails what the incarnation owed and decides on what follows. What
// waits goes on waiting, unless the agent has failed.
func (a *Agent) crashed(inc *incarnation, crash *CrashError) {
	a.sup.count.crashes.add(crash.Reason)
	a.lastError, a.lastCrash = crash.Error(), crash.Reason
	about := []zap.Field{
		zap.Uint64("incarnation", inc.number), zap.String("reason", string(crash.Reason)), zap.String("cause", crash.Cause),
	}
	if crash.Exit != nil {
		about = append(about, zap.Stringer("exit", crash.Exit), zap.String("stderr", crash.Exit.Stderr))
	}
	a.log.Warn("agent crashed", about...)
	a.calls.failSent(crash)
	a.inc = nil
	now := time.Now()
	a.crashes, a.starved = remember(a.crashes, now), nil
	delay, again := a.spec.Policy.Next(a.crashes, now, a.sup.spread())
	if !again || crash.Reason == ReasonProtocol {
		a.setState(Failed, crash.Error())
		a.failQueue(Crashed, crash)
		a.calls.fail(crash)
		return
	}
	a.restartAfter(delay, crash.Error())
}

// stop begins the end of whatever the agent does, for the given reason. The
// channel is closed when nothing is left of the incarnation.
func (a *Agent) stop(reason error) <-chan struct{} {
	a.failQueue(Cancelled, fmt.Errorf("%w: %w", ErrAborted, reason))
	a.calls.failUnsent(reason)
	inc := a.inc
	if inc == nil {
		if a.timer != nil {
			a.timer.Stop()
			a.timer = nil
		}
		if a.state != Stopped {
			a.crashes, a.starved = nil, nil
			a.setState(Stopped, "")
		}
		nothing := make(chan struct{})
		close(nothing)
		return nothing
	}
	if inc.stopped != nil {
		return inc.gone
	}
	inc.stopped = reason
	a.quiet(inc)
	if a.state != Stopping {
		a.setState(Stopping, "")
	}
	if inc.conn == nil {
		inc.cancel()
	} else {
		a.work.Go(func() { inc.conn.Stop(context.Background()) })
	}
	return inc.gone
}

// lose gives an incarnation up: it is killed, and counts as a crash.
func (a *Agent) lose(inc *incarnation, reason Reason, cause string) {
	if inc.lost != "" || inc != a.inc {
		return
	}
	inc.lost, inc.cause = reason, cause
	a.quiet(inc)
	if a.state != Stopping {
		a.setState(Stopping, cause)
	}
	a.work.Go(func() { inc.conn.Stop(killNow) })
}

// quiet drops what the child would have been told, ends what it asked for, and
// looks after it no more.
func (a *Agent) quiet(inc *incarnation) {
	inc.heartbeat.stop()
	inc.out = nil
	a.cancelPermissions(inc, func(r pendingPermission) bool { return !r.answered })
	inc.host.end(nil)
}

// put hands a command to whoever releases the agent's mutex next.
func (inc *incarnation) put(c protocol.Command) {
	if inc.lost == "" && inc.stopped == nil {
		inc.out = append(inc.out, c)
	}
}

// release gives up the agent's mutex, and tells what ended and writes what was
// put out meanwhile, here, unless somebody is at it already.
func (a *Agent) release() {
	a.flush()
	a.mu.Unlock()
}

// releaseElsewhere is release for those who must not wait for a child that does
// not read, nor for the disk.
func (a *Agent) releaseElsewhere() {
	a.flushElsewhere()
	a.mu.Unlock()
}

// releaseReader is release for the reader, which tells of a turn's end itself.
func (a *Agent) releaseReader() {
	a.tell()
	a.releaseElsewhere()
}

// due reports whether there is something to tell or to write, and nobody at it.
func (a *Agent) due() (tell, write bool) {
	inc := a.inc
	return len(a.turns.finished) > 0 && !a.turns.notifying, inc != nil && len(inc.out) > 0 && !inc.writing
}

func (a *Agent) flush() {
	for {
		switch tell, write := a.due(); {
		case tell:
			a.tell()
		case write:
			a.write(a.inc)
		default:
			return
		}
	}
}

func (a *Agent) flushElsewhere() {
	if tell, write := a.due(); tell || write {
		a.work.Go(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.flush()
		})
	}
}

// write writes what is put out, giving up the mutex for each command. One
// goroutine at a time is in it, so commands keep their order.
func (a *Agent) write(inc *incarnation) {
	inc.writing = true
	for len(inc.out) > 0 {
		c := inc.out[0]
		inc.out = inc.out[1:]
		a.mu.Unlock()
		err := inc.conn.Send(c)
		a.mu.Lock()
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*CommandError](err); ok {
			a.unsendable(c, e)
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			a.lose(inc, ReasonStdin, err.Error())
		} else {
			a.lose(inc, ReasonExit, "process ended") // or it closed its stdin: nothing more is to be had of it
		}
	}
	inc.out = nil
	inc.writing = false
}

// unsendable ends what a command was for that cannot be written.
func (a *Agent) unsendable(c protocol.Command, err *CommandError) {
	if t := a.turns.running(); t != nil && t.id == c.Ident() && c.Name() == "prompt" {
		a.finish(t, Erred, err)
	} else if a.calls.answered(c.Ident(), answer{err: err}) {
		a.sendCalls()
	} else if r, ok := c.(protocol.HostResult); ok && r.Error == nil {
		a.inc.put(a.hostResult(r.CallID, nil, &protocol.HostError{Code: CodeRefused, Message: "the answer is too large: " + err.Error()}))
	}
}
