package supervisor

import (
	"fmt"

	"nexus.internal/protocol"
)

// Bounds of the prompts that are in memory, in bytes (SPEC §7).
const (
	maxWaiting = 8 << 20   // of those that wait for one agent
	maxHeld    = 256 << 20 // of those of all agents that wait, or may be sent again
)

// sizeOf is what a prompt counts, in bytes.
func sizeOf(p protocol.Prompt) int {
	size := len(p.Message) + len(p.Source) + len(p.SourceAgentID)
	for _, at := range p.Attachments {
		size += len(at.Path)
		for _, s := range []*string{at.Name, at.Mime} {
			if s != nil {
				size += len(*s)
			}
		}
	}
	return size
}

// hold makes room for the prompt of a new turn, until letGo. What can be sent at
// once is not refused for the sake of other agents. The error is ErrQueueFull with
// what is full. The agent's mutex is held.
func (a *Agent) hold(t *Turn) error {
	size := sizeOf(t.prompt)
	waiting := a.turns.bytes()
	if waiting+size > maxWaiting {
		return fmt.Errorf("%w: what waits has %d bytes, and more than %d may not", ErrQueueFull, waiting, maxWaiting)
	}
	idle := a.state == Ready && !a.turns.occupied()
	if held := a.sup.held.Add(int64(size)); held > maxHeld && !idle {
		a.sup.held.Add(-int64(size))
		return fmt.Errorf("%w: what waits for all agents has %d bytes, and more than %d may not", ErrQueueFull, held-int64(size), maxHeld)
	}
	t.size = size
	return nil
}

// letGo gives up the prompt of a turn that is not sent again. The agent's mutex is
// held.
func (a *Agent) letGo(t *Turn) {
	a.sup.held.Add(-int64(t.size))
	t.prompt, t.size = protocol.Prompt{}, 0
}
