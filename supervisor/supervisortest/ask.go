package supervisortest

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// Host asks the parent by a host_call of the turn and waits for the answer.
// ok is false if the turn was cancelled meanwhile, and then a host_cancel was
// written, or if the child has ended.
func (c *Child) Host(p protocol.Prompt, method, params string) (r protocol.HostResult, ok bool) {
	id, answer := c.question("h")
	c.Emit(protocol.HostCall{CallID: id, TurnID: p.ID, Method: method, Params: jsontext.Value(params)})
	select {
	case cmd := <-answer:
		return cmd.(protocol.HostResult), true
	case <-c.Aborted():
		c.Emit(protocol.HostCancel{CallID: id})
	case <-c.gone:
	}
	return r, false
}

// Permission asks the parent whether it may do something and waits for the
// answer. ok is false if the turn was cancelled or the child has ended.
func (c *Child) Permission(p protocol.Prompt, r protocol.PermissionRequest) (answered protocol.PermissionResponse, ok bool) {
	id, answer := c.question("p")
	r.RequestID, r.TurnID = id, p.ID
	c.Emit(r)
	outcome := "cancelled"
	select {
	case cmd := <-answer:
		answered, ok = cmd.(protocol.PermissionResponse), true
		outcome = "allowed"
		if answered.Decision == protocol.Deny {
			outcome = "denied"
		}
	case <-c.Aborted():
	case <-c.gone:
	}
	c.Emit(protocol.PermissionEnd{RequestID: id, Outcome: outcome})
	return answered, ok
}

// question opens a question with an id that no other incarnation uses.
func (c *Child) question(prefix string) (id string, answer <-chan protocol.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.questions++
	id = fmt.Sprintf("%s%d-%d", prefix, c.number, c.questions)
	if c.open == nil {
		c.open = map[string]chan protocol.Command{}
	}
	room := make(chan protocol.Command, 1) // for the one answer
	c.open[id] = room
	return id, room
}

// answered hands an answer to the asker, and reports whether there is one.
func (c *Child) answered(id string, cmd protocol.Command) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.open[id]
	if ok {
		delete(c.open, id)
		answer <- cmd // it has room
	}
	return ok
}

// known is the response to an answer.
func (c *Child) known(id string, cmd protocol.Command) map[string]any {
	if c.answered(id, cmd) {
		return map[string]any{"ok": true}
	}
	return map[string]any{"ok": false, "error": "no such question waits for an answer"}
}
