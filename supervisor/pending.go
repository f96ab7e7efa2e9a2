package supervisor

import (
	"fmt"
	"slices"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// call is a command that waits for its response. deliver is called once, under
// the agent's mutex, and must not block.
type call struct {
	command protocol.Command // with our id
	deliver func(answer)
}

type answer struct {
	response protocol.Response
	err      error
}

// settle gives a call its answer and forgets it.
func (a *Agent) settle(q *call, r answer) {
	a.forget(q)
	q.deliver(r)
}

func (a *Agent) forget(q *call) {
	delete(a.pending, q.command.Ident())
	a.unsent = slices.DeleteFunc(a.unsent, func(u *call) bool { return u == q })
}

// failCalls settles all calls, or only those that were sent, with err.
func (a *Agent) failCalls(err error, sentOnly bool) {
	for _, q := range a.pending {
		if !sentOnly || !slices.Contains(a.unsent, q) {
			a.settle(q, answer{err: err})
		}
	}
}

// childError is what a response with ok:false says; nil for any other.
func childError(r protocol.Response) error {
	if gjson.GetBytes(r.Body, "ok").Type != gjson.False {
		return nil
	}
	message := gjson.GetBytes(r.Body, "error").String()
	if message == "" {
		message = r.Command + " was refused"
	}
	return &ChildError{Command: r.Command, Message: message}
}

// withID returns c with another id. It refuses the commands that Do does not
// carry.
func withID(c protocol.Command, id string) (protocol.Command, error) {
	switch c := c.(type) {
	case protocol.Compact:
		c.ID = id
		return c, nil
	case protocol.NewSession:
		c.ID = id
		return c, nil
	case protocol.GetMessages:
		c.ID = id
		return c, nil
	case protocol.SetModel:
		c.ID = id
		return c, nil
	case protocol.GetAvailableModels:
		c.ID = id
		return c, nil
	case protocol.Abort:
		c.ID = id
		return c, nil
	case protocol.GetSessionStats:
		c.ID = id
		return c, nil
	case protocol.GetState:
		c.ID = id
		return c, nil
	case protocol.ToolsList:
		c.ID = &id
		return c, nil
	case protocol.Ping:
		c.ID = id
		return c, nil
	case protocol.SetCwd:
		c.ID = id
		return c, nil
	case protocol.SetPermissions:
		c.ID = id
		return c, nil
	case protocol.SetSystemPrompt:
		c.ID = id
		return c, nil
	case protocol.UpdateContext:
		c.ID = id
		return c, nil
	case protocol.MCPConnect:
		c.ID = id
		return c, nil
	case protocol.MCPDisconnect:
		c.ID = id
		return c, nil
	case protocol.PermissionResponse:
		c.ID = id
		return c, nil
	case protocol.Prompt, protocol.FollowUp, protocol.HostResult, protocol.Shutdown:
		return nil, fmt.Errorf("do: %s is not a command of one response", c.Name())
	default:
		return nil, fmt.Errorf("do: command %s is not known", c.Name())
	}
}
