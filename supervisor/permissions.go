package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nexus.internal/protocol"
)

// maxAsked is how many permission requests of one agent may wait; one more is
// denied at once (SPEC §7).
const maxAsked = 64

// pendingPermission is a permission request that was published and whose end was not.
type pendingPermission struct {
	protocol.PermissionRequest
	answered bool        // the child has the answer, and will say what came of it
	ended    chan string // gets the outcome; has room for it
}

// pendingPermissions are the requests of one incarnation that have not ended, oldest
// first; at most maxAsked of them wait for an answer. The owner guards them.
type pendingPermissions struct{ all []pendingPermission }

func (p *pendingPermissions) full() bool {
	return len(p.waiting()) >= maxAsked || len(p.all) >= 2*maxAsked
}

func (p *pendingPermissions) add(r protocol.PermissionRequest) {
	p.all = append(p.all, pendingPermission{PermissionRequest: r, ended: make(chan string, 1)})
}

// end gives a request its outcome; false if it has ended before.
func (p *pendingPermissions) end(requestID, outcome string) bool {
	i := slices.IndexFunc(p.all, func(r pendingPermission) bool { return r.RequestID == requestID })
	if i < 0 {
		return false
	}
	p.all[i].ended <- outcome
	p.all = slices.Delete(p.all, i, i+1)
	return true
}

// cancel ends requests that the child will not end any more, and returns their ids.
func (p *pendingPermissions) cancel(which func(pendingPermission) bool) (ids []string) {
	p.all = slices.DeleteFunc(p.all, func(r pendingPermission) bool {
		if !which(r) {
			return false
		}
		r.ended <- cancelled
		ids = append(ids, r.RequestID)
		return true
	})
	return ids
}

// waiting are the requests without an answer, oldest first.
func (p *pendingPermissions) waiting() []protocol.PermissionRequest {
	var waiting []protocol.PermissionRequest
	for _, r := range p.all {
		if !r.answered {
			waiting = append(waiting, r.PermissionRequest)
		}
	}
	return waiting
}

// answer takes the first answer to a request, and returns the channel that gets its
// outcome. Errors: ErrNoRequest, *DecisionError, *OptionError.
func (p *pendingPermissions) answer(a protocol.PermissionResponse) (ended <-chan string, err error) {
	i := slices.IndexFunc(p.all, func(r pendingPermission) bool { return r.RequestID == a.RequestID && !r.answered })
	if i < 0 {
		return nil, ErrNoRequest
	}
	r := &p.all[i]
	if len(r.Decisions) > 0 && !slices.Contains(r.Decisions, a.Decision) {
		return nil, &DecisionError{Decision: a.Decision, Offered: r.Decisions}
	}
	if a.OptionID != "" && !slices.ContainsFunc(r.Options, func(o protocol.PermissionOption) bool { return o.ID == a.OptionID && o.Kind == a.Decision }) {
		return nil, &OptionError{Option: a.OptionID, Decision: a.Decision}
	}
	r.answered = true
	return r.ended, nil
}

// permissionAsked keeps and tells a permission_request until it has ended. One
// too many is denied and, as nobody is asked, published nowhere; so is one of an
// incarnation that is being ended.
func (inc *incarnation) permissionAsked(raw []byte, r protocol.PermissionRequest) {
	switch {
	case inc.ending():
	case inc.permissions.full():
		inc.enqueue(protocol.PermissionResponse{
			ID: inc.agent.sup.nextID(), RequestID: r.RequestID, Decision: protocol.Deny, Reason: "too many requests wait for an answer",
		})
	default:
		// A child that uses an id again means the new one.
		inc.cancelPermissions(func(old pendingPermission) bool { return old.RequestID == r.RequestID })
		inc.permissions.add(r)
		inc.agent.publish(r.Name(), raw)
	}
}

// cancelPermissions ends requests that the child will not end any more: they are
// cancelled.
func (inc *incarnation) cancelPermissions(which func(pendingPermission) bool) {
	for _, id := range inc.permissions.cancel(which) {
		e := protocol.PermissionEnd{RequestID: id, Outcome: cancelled}
		inc.agent.publish(e.Name(), protocol.EncodeEvent(e))
	}
}

// PermissionRequests are those that wait for an answer, oldest first. They are
// kept by the agent, not by a listener, and end with their answer, their
// deadline, their turn or the process.
func (a *Agent) PermissionRequests() (waiting []protocol.PermissionRequest) {
	a.update(func(s *agentState) []effect {
		if s.inc != nil {
			waiting = s.inc.permissions.waiting()
		}
		return nil
	})
	return waiting
}

// RespondPermission answers one of the PermissionRequests, and returns once the
// child has said what came of it. The first answer counts; ErrNoRequest if the
// request was answered, never was, or ended by anything but this answer, a
// *DecisionError if it does not offer that decision, and waits on. The other
// errors are those of Do.
func (a *Agent) RespondPermission(ctx context.Context, r protocol.PermissionResponse) error {
	var ended <-chan string
	_, err := a.do(ctx, r, "", func(s *agentState) (err error) {
		if s.inc == nil {
			return ErrNoRequest
		}
		ended, err = s.inc.permissions.answer(r)
		return err
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

// OptionError says that a permission request does not offer an option for a decision.
type OptionError struct {
	Option   string
	Decision protocol.Decision
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%.64q is no option of the request for %s", e.Option, e.Decision)
}

// This file is about what was taken from an agent and is not in its session yet.

// unsaved is what a child holds and was granted by its owner, if its session has more.
// Zero if the session has it all.
type unsaved struct {
	holds, granted *protocol.Permissions
}

// unsavedOf is what a child could not save, after its answer to a set_permissions;
// before is what that was before.
func unsavedOf(err error, before unsaved) unsaved {
	refused, ok := errors.AsType[*ChildError](err)
	switch {
	case !ok: // it was saved, and all before it
		return unsaved{}
	case refused.Holds != nil:
		return unsaved{refused.Holds, refused.Granted}
	default: // nothing has changed
		return before
	}
}

// command has a child hold and be granted no more than u.
func (u unsaved) command(id string) protocol.SetPermissions {
	return protocol.SetPermissions{ID: id, Permissions: u.holds, Within: protocol.WithinHeld, Granted: u.granted}
}

// saveRetry is between attempts to save what was taken from an agent and could not be saved.
const saveRetry = time.Second

// saveLater has the child save that after saveRetry; its answer leads here again if it cannot.
func (inc *incarnation) saveLater() {
	if inc.saveAgain != nil {
		return
	}
	inc.saveAgain = time.AfterFunc(saveRetry, func() {
		inc.agent.update(func(s *agentState) []effect {
			if inc.saveAgain == nil { // stopped
				return nil
			}
			inc.saveAgain = nil
			inc.enqueue(s.narrowed.command(s.agent.sup.nextID()))
			return s.elsewhere()
		})
	})
}

// SaveNarrowed has the agent's session say what was taken from the agent and could not
// be saved when that was done. It does nothing if there is no such thing; else it waits
// for the child, and starts that of a stopped agent. The error, that of Do, is why the
// session still says more than the agent may: a *ChildError with the Reason of the
// child. It is safe for concurrent use.
func (a *Agent) SaveNarrowed(ctx context.Context) error {
	var narrowed unsaved
	a.update(func(s *agentState) []effect {
		narrowed = s.narrowed
		return nil
	})
	if narrowed.holds == nil {
		return nil
	}
	_, err := Do(ctx, a, narrowed.command(""))
	return err
}
