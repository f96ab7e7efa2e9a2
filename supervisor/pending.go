package supervisor

import (
	"cmp"
	"maps"
	"slices"

	"nexus.internal/protocol"
)

// maxOwed is how many answers a child may owe us that come as soon as it has read
// the command. Each has up to 1 MiB, and those for which it has no room are lost
// (SPEC §3.4): so all have room, and some is left for what else it answers.
const maxOwed = 4

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

// enqueue gives the child a command, at once or when it is its turn.
func (a *Agent) enqueue(q *call) {
	a.pending[q.command.Ident()] = q
	a.unsent = append(a.unsent, q)
	a.ask()
}

// ask gives the child the commands that wait, if it is ready, as far as it may owe
// their answers.
func (a *Agent) ask() {
	if a.state != Ready && a.state != Busy {
		return
	}
	var waiting []*call
	for _, q := range a.unsent {
		if soon(q.command) {
			if len(a.inc.owed) >= maxOwed {
				waiting = append(waiting, q)
				continue
			}
			a.inc.owed[q.command.Ident()] = struct{}{}
		}
		a.inc.put(q.command)
	}
	a.unsent = waiting
}

// answered gives a command its answer, also one that nobody waits for any more; false
// if the child was given none of that id that it has not answered.
func (a *Agent) answered(id string, r answer) bool {
	q := a.pending[id]
	if _, owed := a.inc.owed[id]; q == nil && !owed {
		return false
	}
	a.inc.heartbeat.answer()
	if q != nil {
		a.settle(q, r)
	}
	delete(a.inc.owed, id)
	a.ask()
	return true
}

// loseAnswers accounts for answers that the child says are lost. It does not say
// which, so all that it owes are taken for lost.
func (a *Agent) loseAnswers(message string) {
	a.inc.heartbeat.answer()
	clear(a.inc.owed)
	for _, q := range slices.Collect(maps.Values(a.pending)) {
		if !slices.Contains(a.unsent, q) {
			a.settle(q, answer{err: &ChildError{Command: q.command.Name(), Message: message}})
		}
	}
	a.ask()
}

// childError is what a response says that refuses its command; nil for any other.
func childError(r protocol.Response) error {
	no := r.Refusal()
	if no == nil {
		return nil
	}
	return &ChildError{
		Command: r.Command, Message: cmp.Or(no.Error, r.Command+" was refused"), Reason: no.Reason, Holds: no.Permissions, Granted: no.Granted,
	}
}

// soon reports whether the child answers a command before it reads the next one.
// The others are answered when something is done, or have answers of a few bytes,
// and must not wait in line.
func soon(c protocol.Command) bool {
	switch c.(type) {
	case protocol.Abort, protocol.Ping, protocol.PermissionResponse,
		protocol.Compact, protocol.GetAvailableModels, protocol.MCPConnect, protocol.MCPDisconnect:
		return false
	default:
		return true
	}
}
