package supervisor

import (
	"fmt"
	"sync/atomic"

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

// promptBudget counts the prompts of all agents that are in memory. It is safe for
// concurrent use.
type promptBudget struct{ bytes atomic.Int64 }

// Reserve makes room for a prompt of size bytes, also where there is none if it must have
// some. The error is ErrQueueFull with what is full.
func (b *promptBudget) Reserve(size int, must bool) error {
	if held := b.bytes.Add(int64(size)); held > maxHeld && !must {
		b.Release(size)
		return fmt.Errorf("%w: what waits for all agents has %d bytes, and more than %d may not", ErrQueueFull, held-int64(size), maxHeld)
	}
	return nil
}

// Release gives room back.
func (b *promptBudget) Release(size int) { b.bytes.Add(-int64(size)) }

// reserve makes room for the prompt of a new turn, until it is dropped. What can be sent
// at once is not refused for the sake of other agents. The error is ErrQueueFull with
// what is full.
func (s *agentState) reserve(t *Turn) error {
	size := sizeOf(t.prompt)
	if err := s.turns.roomFor(t.of, size); err != nil {
		return err
	}
	idle := s.state == Ready && !s.turns.occupied()
	if err := s.agent.sup.budget.Reserve(size, idle); err != nil {
		return err
	}
	t.size = size
	return nil
}

// drop gives up the prompt of a turn that is not sent again.
func (t *Turn) drop(b *promptBudget) {
	b.Release(t.size)
	t.prompt, t.size = protocol.Prompt{}, 0
}
