package supervisor

import (
	"context"
	"errors"

	"nexus.internal/protocol"
)

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
