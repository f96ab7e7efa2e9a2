package bridge

import (
	"errors"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Which caller may give an agent how much (SPEC §6.5, "Grants"). These two
// functions are the whole rule: each method that could widen what an agent may do
// calls one of them.

// bound is what a caller's change to an agent's permissions and directory stays
// within.
func (c *call) bound() protocol.Bound {
	switch {
	case c.from != nil:
		return protocol.WithinHeld
	case c.pass.grant.Scope != auth.ScopeAgent:
		return protocol.WithinCeiling
	case c.pass.grant.MayGrant:
		return protocol.WithinGranted
	default:
		return protocol.WithinHeld
	}
}

// mayGrant reports why a caller may not let an agent do what its permissions leave
// open: approve a call, or start a program.
func (c *call) mayGrant(what string) error {
	if c.bound() == protocol.WithinHeld {
		return &deniedError{"the key is good for agent " + c.pass.grant.AgentID + " and only narrows what it may do: to " + what + " wants a key made with may_grant"}
	}
	return nil
}

// refusedChange is the error of a change that a child refused: the parameter's fault,
// unless the caller may not have it or it could not be saved.
func refusedChange(c *call, param string, command protocol.Command, err error) error {
	refused, ok := errors.AsType[*supervisor.ChildError](err)
	if !ok || refused.Unreadable != nil || refused.Reason == protocol.StorageFull || refused.Reason == protocol.NotSaved {
		return err
	}
	problem := strings.TrimPrefix(refused.Message, command.Name()+": ")
	if refused.Reason == protocol.BeyondBound {
		may := "narrows what the agent may do"
		if c.bound() == protocol.WithinGranted {
			may = "gives what the owner granted"
		}
		return &deniedError{"the key only " + may + ": " + problem}
	}
	return api.Invalid(param, "%s", problem)
}
