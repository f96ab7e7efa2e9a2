package rpc

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Elsewhere has calls answered by the other machines of a cluster. It is safe for concurrent use.
type Elsewhere interface {
	// Owner is the other machine that has an agent; ok is false if none is known to.
	Owner(agent string) (machine string, ok bool)
	// Call has a machine answer a call, and returns what it answered: the result, or the error as a *RemoteError. If it
	// answers as it goes, that is written to out, but for the answer itself. The result is nil for a notification.
	Call(ctx context.Context, machine string, c *Call, out *Stream) (jsontext.Value, error)
}

// RemoteError is an error that another machine has answered with. It is passed on as it stands.
type RemoteError struct{ Answer Error }

func (e *RemoteError) Error() string { return e.Answer.Err.Error() }

// owner is the other machine that has the agent of a call; "" if this one is to answer.
func (r *Router) owner(c *Call) string {
	if r.o.Elsewhere == nil || c.Forwarded || c.Agent == "" {
		return ""
	}
	machine, _ := r.o.Elsewhere.Owner(c.Agent)
	return machine
}
