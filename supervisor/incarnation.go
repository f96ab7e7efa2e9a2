package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// incarnation is one run of an agent's child, from its launch until nothing of it is
// left. It is a part of the agent's state: what follows conn changes in updates only.
type incarnation struct {
	agent   *Agent
	number  uint64
	again   bool               // it comes after a crash
	cancel  context.CancelFunc // of the launch
	settled chan struct{}      // closed when the launch is over
	gone    chan struct{}      // closed when nothing is left
	conn    Conn               // nil until launched
	err     error              // of the launch

	stopped error  // why we were asked to stop it, nil if nobody asked
	lost    Reason // why we gave it up, "" if we did not
	cause   string // the same in words
	exited  bool   // its process has ended
	limit   string // that of a turn which it did not end, if we gave it up for that

	sendQueue   outbox[protocol.Command] // by boundUnread not many more than maxUnread
	heartbeat   heartbeat
	host        hostCalls
	permissions pendingPermissions
	outputOn    bool        // it was told that the output of tools is wanted
	outputAsked bool        // it was told so once: what it sends of it is not numbered
	saveAgain   *time.Timer // tries again to save what was taken from the agent; nil if nothing waits
}

// KillNow is a context for Conn.Stop that leaves out the polite rungs: it has ended.
var KillNow = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (a *Agent) start(ctx context.Context) (inc *incarnation) {
	a.update(func(s *agentState) []effect {
		inc = s.launch(ctx, false)
		return nil
	})
	return inc
}

// live is the goroutine of one incarnation.
func (a *Agent) live(ctx context.Context, inc *incarnation) {
	conn, err := a.bringUp(ctx, inc)
	inc.cancel()
	a.update(func(s *agentState) []effect {
		if err == nil {
			s.launched(inc, conn)
		} else {
			s.unlaunched(inc, err)
		}
		return s.elsewhere()
	})
	if err != nil {
		return
	}
	var pace outputPace
	for {
		f, err := conn.Recv()
		if err != nil {
			a.update(func(*agentState) []effect {
				inc.cutOff(err)
				return nil
			})
			break
		}
		a.handle(inc, f)
		pace.read(a, len(f.Raw))
	}
	a.bury(inc, conn.Stop(KillNow))
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
	limit := cmp.Or(a.spec.StartTimeout, StartTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready in %s", limit))
	defer cancel()
	began := time.Now()
	spec := a.spec
	a.update(func(s *agentState) []effect {
		spec.Limits = s.limits
		if s.session != nil && s.session.Cwd != "" { // the one before may be gone
			spec.Cwd = s.session.Cwd
		}
		return nil
	})
	conn, err := a.launcher.Launch(ctx, spec, a.ranBefore())
	if err == nil {
		a.sup.count.launched.observe(time.Since(began))
	}
	return conn, err
}

// bury accounts for an incarnation that has left nothing, after the turn that it ran.
func (a *Agent) bury(inc *incarnation, exit Exit) {
	var crash *CrashError
	var last *Turn // that has ended with it
	a.update(func(s *agentState) []effect {
		crash = s.exited(inc, exit)
		last = s.turns.current
		return s.byReader()
	})
	if last != nil {
		<-last.done // somebody else may notify of it
	}
	a.update(func(s *agentState) []effect {
		if inc.stopped == nil {
			s.crashed(inc, crash)
		} else {
			a.log.Info("agent stopped", zap.Uint64("incarnation", inc.number), zap.Stringer("exit", crash.Exit))
			s.rest(inc)
		}
		close(inc.gone)
		return s.elsewhere()
	})
}

func (a *Agent) ranBefore() (ran bool) {
	a.update(func(s *agentState) []effect {
		ran = s.ran
		return nil
	})
	return ran
}

// cutOff accounts for the end of its output.
func (inc *incarnation) cutOff(err error) {
	if inc.lost == "" && !errors.Is(err, io.EOF) {
		inc.lost, inc.cause = ReasonOutput, err.Error()
	}
}

// burial is closed when it is decided what follows the end of the process; nil if that is not to
// come, or there is none. Whoever has the answer of a turn that ended with the process finds the agent failed, if
// it fails.
func (inc *incarnation) burial() <-chan struct{} {
	if inc == nil || !inc.exited {
		return nil
	}
	return inc.gone
}

func (inc *incarnation) ending() bool { return inc.lost != "" || inc.stopped != nil }

func (inc *incarnation) enqueue(c protocol.Command) {
	if !inc.ending() {
		inc.sendQueue.add(c)
	}
}

// maxUnread is how many commands may wait for the child to read. The calls under way, the one turn and the answers to host calls and questions are fewer; a child
// that is refused what it asks for, and asks on without reading, comes to it.
const maxUnread = 2048

// boundUnread gives up an incarnation that leaves too much unread, after a frame of it.
func boundUnread(s *agentState, inc *incarnation) {
	if len(inc.sendQueue.items) > maxUnread {
		s.markLost(inc, ReasonStdin, fmt.Sprintf("it does not read what it asked for: %d frames wait", maxUnread))
	}
}

// cancelPending drops the commands that were not written, ends what it asked for, and
// looks after it no more.
func (inc *incarnation) cancelPending() {
	inc.heartbeat.stop()
	if inc.saveAgain != nil {
		inc.saveAgain.Stop()
		inc.saveAgain = nil
	}
	inc.sendQueue.clear()
	inc.cancelPermissions(func(r pendingPermission) bool { return !r.answered })
	inc.host.end(nil)
}
