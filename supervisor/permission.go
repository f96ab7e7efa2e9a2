package supervisor

import (
	"context"
	"errors"
	"slices"

	"nexus.internal/protocol"
)

// maxAsked is how many permission requests of one agent may wait; one more is
// denied at once (SPEC §7).
const maxAsked = 64

// permissionAsked keeps a permission_request until it is answered or needs no
// answer any more. The agent's mutex is held.
func (a *Agent) permissionAsked(inc *incarnation, r protocol.PermissionRequest) {
	switch {
	case inc.lost != "" || inc.stopped != nil:
	case len(inc.asked) >= maxAsked:
		inc.put(protocol.PermissionResponse{
			ID: a.sup.nextID(), RequestID: r.RequestID, Decision: protocol.Deny, Reason: "too many requests wait for an answer",
		})
	default:
		inc.permissionEnded(r.RequestID) // a child that uses an id again means the new one
		inc.asked = append(inc.asked, r)
	}
}

// permissionEnded forgets a request, and reports whether it was there.
func (inc *incarnation) permissionEnded(id string) bool {
	before := len(inc.asked)
	inc.asked = slices.DeleteFunc(inc.asked, func(r protocol.PermissionRequest) bool { return r.RequestID == id })
	return len(inc.asked) < before
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
	return slices.Clone(a.inc.asked)
}

// RespondPermission answers one of the PermissionRequests. The first answer
// counts; ErrNoRequest if the request was answered, has ended or never was. The
// other errors are those of Do.
func (a *Agent) RespondPermission(ctx context.Context, r protocol.PermissionResponse) error {
	a.mu.Lock()
	waits := a.inc != nil && a.inc.permissionEnded(r.RequestID)
	a.mu.Unlock()
	if !waits {
		return ErrNoRequest
	}
	_, err := a.Do(ctx, r)
	if _, ok := errors.AsType[*ChildError](err); ok { // it has ended meanwhile
		return ErrNoRequest
	}
	return err
}
