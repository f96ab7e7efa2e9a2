package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nexus.internal/protocol"
)

// maxAsked is how many permission requests of one agent may wait; one more is
// denied at once (SPEC §7).
const maxAsked = 64

// asked is a permission request that was told and whose end was not.
type asked struct {
	protocol.PermissionRequest
	answered bool        // the child has the answer, and will say what came of it
	ended    chan string // gets the outcome; has room for it
}

// permissionAsked keeps and tells a permission_request until it has ended. One
// too many is denied and, as nobody is asked, told to nobody; so is one of an
// incarnation that is being ended. The agent's mutex is held.
func (a *Agent) permissionAsked(inc *incarnation, raw []byte, r protocol.PermissionRequest) {
	switch {
	case inc.lost != "" || inc.stopped != nil:
	case len(inc.waiting()) >= maxAsked || len(inc.asked) >= 2*maxAsked:
		inc.put(protocol.PermissionResponse{
			ID: a.sup.nextID(), RequestID: r.RequestID, Decision: protocol.Deny, Reason: "too many requests wait for an answer",
		})
	default:
		// A child that uses an id again means the new one.
		a.withdraw(inc, func(old asked) bool { return old.RequestID == r.RequestID })
		inc.asked = append(inc.asked, asked{PermissionRequest: r, ended: make(chan string, 1)})
		a.publish(r.Name(), raw)
	}
}

// permissionEnded tells a permission_end, unless the end was told before. The
// agent's mutex is held.
func (a *Agent) permissionEnded(inc *incarnation, raw []byte, e protocol.PermissionEnd) {
	i := slices.IndexFunc(inc.asked, func(r asked) bool { return r.RequestID == e.RequestID })
	if i < 0 {
		return
	}
	inc.asked[i].ended <- e.Outcome
	inc.asked = slices.Delete(inc.asked, i, i+1)
	a.publish(e.Name(), raw)
}

// withdraw ends requests that the child will not end any more: they are
// cancelled. The agent's mutex is held.
func (a *Agent) withdraw(inc *incarnation, which func(asked) bool) {
	inc.asked = slices.DeleteFunc(inc.asked, func(r asked) bool {
		if !which(r) {
			return false
		}
		r.ended <- cancelled
		e := protocol.PermissionEnd{RequestID: r.RequestID, Outcome: cancelled}
		a.publish(e.Name(), encode(e))
		return true
	})
}

// waiting are the requests without an answer, oldest first.
func (inc *incarnation) waiting() []protocol.PermissionRequest {
	var waiting []protocol.PermissionRequest
	for _, r := range inc.asked {
		if !r.answered {
			waiting = append(waiting, r.PermissionRequest)
		}
	}
	return waiting
}

// PermissionRequests are those that wait for an answer, oldest first. They are
// kept by the agent, not by whoever listens, and end with their answer, their
// deadline, their turn or the process.
func (a *Agent) PermissionRequests() []protocol.PermissionRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inc == nil {
		return nil
	}
	return a.inc.waiting()
}

// RespondPermission answers one of the PermissionRequests, and returns once the
// child has said what came of it. The first answer counts; ErrNoRequest if the
// request was answered, never was, or ended by anything but this answer, a
// *DecisionError if it does not offer that decision, and waits on. The other
// errors are those of Do.
func (a *Agent) RespondPermission(ctx context.Context, r protocol.PermissionResponse) error {
	var ended <-chan string
	_, err := a.do(ctx, r, func() error {
		if a.inc == nil {
			return ErrNoRequest
		}
		i := slices.IndexFunc(a.inc.asked, func(q asked) bool { return q.RequestID == r.RequestID && !q.answered })
		if i < 0 {
			return ErrNoRequest
		}
		if offered := a.inc.asked[i].Decisions; len(offered) > 0 && !slices.Contains(offered, r.Decision) {
			return &DecisionError{Decision: r.Decision, Offered: offered}
		}
		a.inc.asked[i].answered, ended = true, a.inc.asked[i].ended
		return nil
	})
	if _, ok := errors.AsType[*ChildError](err); ok { // it has ended meanwhile
		return ErrNoRequest
	}
	if err != nil {
		return err
	}
	select {
	case outcome := <-ended:
		if outcome != decided[r.Decision] { // the end of its turn, or the deadline, was faster
			return ErrNoRequest
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decided is the outcome of requests by what is decided; cancelled is that of one which
// nobody decides any more.
var decided = map[protocol.Decision]string{
	protocol.AllowOnce: "allowed", protocol.AllowSession: "allowed", protocol.Deny: "denied",
}

const cancelled = "cancelled"

// DecisionError says that a permission request does not offer a decision.
type DecisionError struct {
	Decision protocol.Decision
	Offered  []protocol.Decision
}

func (e *DecisionError) Error() string {
	return fmt.Sprintf("%s is not among what the request offers: %v", e.Decision, e.Offered)
}
