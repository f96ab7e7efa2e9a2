package methods

import (
	"errors"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// refusedChange is the error of a change that a child refused: the parameter's fault,
// unless the caller may not have it, it could not be saved, the agent is busy, or is of a kind that has no such thing.
func refusedChange(c *rpc.Call, param string, command protocol.Command, err error) error {
	refused, ok := errors.AsType[*supervisor.ChildError](err)
	if !ok || refused.Unreadable != nil || refused.Reason == protocol.StorageFull || refused.Reason == protocol.NotSaved || refused.Reason == protocol.Busy || refused.Reason == protocol.Unsupported {
		return err
	}
	problem := strings.TrimPrefix(refused.Message, command.Name()+": ")
	if refused.Reason == protocol.BeyondBound {
		may := "narrows what the agent may do"
		if c.Bound() == protocol.WithinGranted {
			may = "gives what the owner granted"
		}
		return api.Denied("the key only %s: %s", may, problem)
	}
	return api.Invalid(param, "%s", problem)
}
