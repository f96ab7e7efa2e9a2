package supervisor

import "nexus.internal/protocol"

// sendQueue has the commands that are to be written to one incarnation, oldest first; the
// calls under way, the one turn and what the child asks for bound it. The owner guards it.
type sendQueue struct {
	commands []protocol.Command
	writing  bool // somebody writes them
}

func (q *sendQueue) enqueue(c protocol.Command) { q.commands = append(q.commands, c) }

// clear drops what is not written yet.
func (q *sendQueue) clear() { q.commands = nil }

// claim makes the caller the one that writes, from the command that it gets; nil if there
// is none, or somebody at it.
func (q *sendQueue) claim() protocol.Command {
	if len(q.commands) == 0 || q.writing {
		return nil
	}
	q.writing = true
	return q.next()
}

// next takes the next command to write. Nil ends the claim.
func (q *sendQueue) next() protocol.Command {
	if len(q.commands) == 0 {
		q.commands, q.writing = nil, false
		return nil
	}
	c := q.commands[0]
	q.commands[0] = nil
	q.commands = q.commands[1:]
	return c
}
