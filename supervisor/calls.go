package supervisor

import (
	"cmp"
	"math"
	"slices"
	"time"

	"nexus.internal/protocol"
)

// maxPending is how many commands may be under way in one agent; one more is
// refused with ErrQueueFull.
const maxPending = 256

// maxInFlight is how many answers a child may owe us that come as soon as it has read
// the command. Each has up to 1 MiB, and those for which it has no room are lost
// (SPEC §3.4): so all have room, and some is left for what else it answers.
const maxInFlight = 4

// call is a command that waits for its response. deliver is called once, within an
// update of the agent, and must not block.
type call struct {
	command protocol.Command // with our id
	of      string           // as PromptOptions.Limited
	deliver func(answer)
}

type answer struct {
	response protocol.Response
	err      error
}

// calls are the commands of one agent that wait for their responses. The owner
// guards them.
type calls struct {
	pending  map[string]*call    // by the id on the wire
	unsent   []*call             // the part of pending that the child was not given yet, oldest first
	inFlight map[string]struct{} // the answers that the child owes us soon, by the id; at most maxInFlight
}

func newCalls() calls {
	return calls{pending: map[string]*call{}, inFlight: map[string]struct{}{}}
}

func (c *calls) restart() { clear(c.inFlight) }

// room says which share has no place for one more; nil if there is one in each.
func (c *calls) room(limited string) error {
	return room(limited, 1, maxPending, "requests are under way", func(counts func(string) bool) (n int) {
		for _, q := range c.pending {
			if counts(q.of) {
				n++
			}
		}
		return n
	})
}

func (c *calls) idle() bool { return len(c.pending) == 0 }

func (c *calls) enqueue(q *call) {
	c.expect(q)
	c.unsent = append(c.unsent, q)
}

// expect keeps a call that the caller sends itself, at once.
func (c *calls) expect(q *call) { c.pending[q.command.Ident()] = q }

// next takes the commands that the child may be given now, oldest first: as far as it
// may owe their answers.
func (c *calls) next() []protocol.Command {
	var now []protocol.Command
	var waiting []*call
	for _, q := range c.unsent {
		if answersImmediately(q.command) {
			if len(c.inFlight) >= maxInFlight {
				waiting = append(waiting, q)
				continue
			}
			c.inFlight[q.command.Ident()] = struct{}{}
		}
		now = append(now, q.command)
	}
	c.unsent = waiting
	return now
}

// answered gives a command its answer, also one that nobody waits for any more; false
// if the child was given none of that id that it has not answered.
func (c *calls) answered(id string, r answer) bool {
	q := c.pending[id]
	if _, owed := c.inFlight[id]; q == nil && !owed {
		return false
	}
	if q != nil {
		c.complete(q, r)
	}
	delete(c.inFlight, id)
	return true
}

func (c *calls) complete(q *call, r answer) {
	c.forget(q)
	q.deliver(r)
}

func (c *calls) forget(q *call) {
	delete(c.pending, q.command.Ident())
	c.unsent = slices.DeleteFunc(c.unsent, func(u *call) bool { return u == q })
}

func (c *calls) fail(err error) {
	c.failUnsent(err)
	c.failSent(err)
}

func (c *calls) failUnsent(err error) {
	for _, q := range slices.Clone(c.unsent) {
		c.complete(q, answer{err: err})
	}
}

func (c *calls) failSent(err error) {
	for _, q := range c.sent() {
		c.complete(q, answer{err: err})
	}
}

// markLost completes the calls that were sent, as the child says that answers are lost. It
// does not say which, so all that it owes are taken for lost.
func (c *calls) markLost(message string) {
	clear(c.inFlight)
	for _, q := range c.sent() {
		c.complete(q, answer{err: &ChildError{Command: q.command.Name(), Message: message}})
	}
}

// sent are the calls that the child was given.
func (c *calls) sent() []*call {
	var sent []*call
	for _, q := range c.pending {
		if !slices.Contains(c.unsent, q) {
			sent = append(sent, q)
		}
	}
	return sent
}

// answered gives a command its answer; false if the child owes none of that id.
func (s *agentState) answered(id string, r answer) bool {
	if !s.calls.answered(id, r) {
		return false
	}
	s.inc.heartbeat.answer()
	s.sendCalls()
	return true
}

// sendCalls gives the child the commands that wait, if it is ready.
func (s *agentState) sendCalls() {
	if s.state != Ready && s.state != Busy {
		return
	}
	for _, c := range s.calls.next() {
		s.inc.enqueue(c)
	}
}

// childError is what a response says that refuses its command; nil for any other.
func childError(r protocol.Response) error {
	no := r.Refusal()
	if no == nil {
		return nil
	}
	return &ChildError{
		Command: r.Command, Message: cmp.Or(no.Error, r.Command+" was refused"), Reason: no.Reason, Holds: no.Permissions, Granted: no.Granted,
		RetryAfter: time.Duration(min(no.RetryAfterMS, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond,
	}
}

// answersImmediately reports whether the child answers a command before it reads the next one.
// The others are answered when something is done, or have answers of a few bytes,
// and must not wait in line.
func answersImmediately(c protocol.Command) bool {
	switch c.(type) {
	case protocol.Abort, protocol.Ping, protocol.PermissionResponse,
		protocol.Compact, protocol.GetAvailableModels, protocol.MCPConnect, protocol.MCPDisconnect:
		return false
	default:
		return true
	}
}
