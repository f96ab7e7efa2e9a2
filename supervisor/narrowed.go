package supervisor

import (
	"context"
	"errors"

	"nexus.internal/protocol"
)

// This file is about what was taken from an agent and is not in its session yet.

// unsavedOf is what a child holds and could not save, after its answer to a
// set_permissions; before is what that was before. Nil if its session has it all.
func unsavedOf(err error, before *protocol.Permissions) *protocol.Permissions {
	refused, ok := errors.AsType[*ChildError](err)
	switch {
	case !ok: // it was saved, and all before it
		return nil
	case refused.Holds != nil:
		return refused.Holds
	default: // nothing has changed
		return before
	}
}

// renarrow tells an incarnation, before anything else, what the one before held and
// could not save: its session may still have more. The agent's mutex is held.
func (a *Agent) renarrow(inc *incarnation) {
	if a.narrowed != nil {
		inc.put(protocol.SetPermissions{ID: a.sup.nextID(), Permissions: a.narrowed, Within: protocol.WithinHeld})
	}
}

// SaveNarrowed has the agent's session say what was taken from the agent and could not
// be saved when that was done. It does nothing if there is no such thing; else it waits
// for the child, and starts that of a stopped agent. The error, that of Do, is why the
// session still says more than the agent may: a *ChildError with the Reason of the
// child. It is safe for concurrent use.
func (a *Agent) SaveNarrowed(ctx context.Context) error {
	a.mu.Lock()
	narrowed := a.narrowed
	a.mu.Unlock()
	if narrowed == nil {
		return nil
	}
	_, err := Do(ctx, a, protocol.SetPermissions{Permissions: narrowed, Within: protocol.WithinHeld})
	return err
}
