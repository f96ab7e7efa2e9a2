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
	answered bool // the child has the answer, and will say what came of it
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
		inc.asked = append(inc.asked, asked{PermissionRequest: r})
		a.publish(r.Name(), raw)
	}
}

// permissionEnded tells a permission_end, unless the end was told before. The
// agent's mutex is held.
func (a *Agent) permissionEnded(inc *incarnation, raw []byte, e protocol.PermissionEnd) {
	before := len(inc.asked)
	inc.asked = slices.DeleteFunc(inc.asked, func(r asked) bool { return r.RequestID == e.RequestID })
	if len(inc.asked) < before {
		a.publish(e.Name(), raw)
	}
}

// withdraw ends requests that the child will not end any more: they are
// cancelled. The agent's mutex is held.
func (a *Agent) withdraw(inc *incarnation, which func(asked) bool) {
	inc.asked = slices.DeleteFunc(inc.asked, func(r asked) bool {
		if !which(r) {
			return false
		}
		data := append([]byte(`{"type":"permission_end","request_id":`), appendQuoted(r.RequestID)...)
		a.publish("permission_end", append(data, `,"outcome":"cancelled"}`...))
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

// RespondPermission answers one of the PermissionRequests. The first answer
// counts; ErrNoRequest if the request was answered, has ended or never was, a
// *DecisionError if it does not offer that decision, and waits on. The other
// errors are those of Do.
func (a *Agent) RespondPermission(ctx context.Context, r protocol.PermissionResponse) error {
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
		a.inc.asked[i].answered = true
		return nil
	})
	if _, ok := errors.AsType[*ChildError](err); ok { // it has ended meanwhile
		return ErrNoRequest
	}
	return err
}

// DecisionError says that a permission request does not offer a decision.
type DecisionError struct {
	Decision protocol.Decision
	Offered  []protocol.Decision
}

func (e *DecisionError) Error() string {
	return fmt.Sprintf("%s is not among what the request offers: %v", e.Decision, e.Offered)
}
