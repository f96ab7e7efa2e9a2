package conversation

import (
	"fmt"
	"slices"

	"nexus.internal/protocol"
)

// Compactable says how many of the first messages compaction may replace: those before
// the last keep turns. If there are too few, ok is false and why says so. The
// messages are shared and must not be changed.
func (c *Conversation) Compactable(keep int) (old []protocol.Message, ok bool, why string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.compactable(keep)
}

func (c *Conversation) compactable(keep int) (old []protocol.Message, ok bool, why string) {
	n := c.beforeLast(keep)
	switch {
	case n == 0:
		kept := fmt.Sprintf("the last %d turns are always kept", keep)
		if keep == 1 {
			kept = "the last turn is always kept"
		}
		return nil, false, fmt.Sprintf("too little to summarise: %d messages, and %s", len(c.messages), kept)
	case n == 1 && IsSummary(c.messages[0]):
		return nil, false, "nothing has been said since the last summary that is old enough to summarise"
	}
	return slices.Clip(c.messages[:n]), true, ""
}

// beforeLast is how many messages there are before the last turns; 0 if these
// are all. c.mu is held.
func (c *Conversation) beforeLast(turns int) int {
	for i := len(c.messages) - 1; i > 0; i-- {
		if c.messages[i].Role == protocol.RoleUser {
			if turns--; turns == 0 {
				return i
			}
		}
	}
	return 0
}

// DueForCompaction says which of the first messages compaction is to replace once the
// conversation takes percent of what is available; nil if it does not, or if
// there are none. The last KeepTurns turns are kept if that makes enough room,
// else the last one. The messages are shared and must not be changed.
func (c *Conversation) DueForCompaction(percent int) []protocol.Message {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.breakdown()
	limit := b.Available * uint64(percent) / 100
	if b.Total < limit {
		return nil
	}
	keep := KeepTurns
	if n := c.beforeLast(keep); n == 0 || b.System+b.Tools+c.tokens(c.windowFrom(n).bytes) >= limit {
		keep = 1
	}
	old, _, _ := c.compactable(keep)
	return old
}

// CompactionTokens says how many tokens the conversation would be with its first dropped messages
// replaced by summary.
func (c *Conversation) CompactionTokens(dropped int, summary protocol.Message) (before, after uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.breakdown()
	left := c.windowFrom(dropped).bytes + size(summary).size
	return b.Total, b.System + b.Tools + c.tokens(left)
}

// Compact replaces the first dropped messages by summary.
func (c *Conversation) Compact(dropped int, summary protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(slices.Concat([]protocol.Message{summary}, c.messages[dropped:]))
}
