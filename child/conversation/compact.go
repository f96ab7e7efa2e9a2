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
	return c.compactable(keep, c.leftOut(c.surroundings()))
}

func (c *Conversation) compactable(keep int, leftOut []unanswered) (old []protocol.Message, ok bool, why string) {
	n := c.beforeLast(keep, leftOut)
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

// DueForCompaction says which of the first messages compaction is to replace once the
// conversation takes percent of what is available; nil if it does not, if there
// are none, or if the last turn alone takes all of it. The last KeepTurns turns
// are kept if that makes enough room, else the last one. The messages are shared
// and must not be changed.
func (c *Conversation) DueForCompaction(percent int) []protocol.Message {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.breakdown()
	limit := b.Available * uint64(percent) / 100
	if b.Total < limit {
		return nil
	}
	keep, leftOut := KeepTurns, c.leftOut(b)
	if n := c.beforeLast(keep, leftOut); n == 0 || b.System+b.Tools+c.tokens(c.sizeFrom(n, leftOut).size) >= limit {
		keep = 1
	}
	if keep == 1 && b.System+b.Tools+c.tokens(c.sizeFrom(c.beforeLast(1, nil), nil).size) >= b.Available {
		return nil // a request would not even have room for the summary
	}
	old, _, _ := c.compactable(keep, leftOut)
	return old
}

// CompactionTokens says how many tokens the conversation would be with its first dropped messages
// replaced by summary.
func (c *Conversation) CompactionTokens(dropped int, summary protocol.Message) (before, after uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.breakdown()
	left := c.sizeFrom(dropped, c.leftOut(b)).size + size(summary).size
	return b.Total, b.System + b.Tools + c.tokens(left)
}

// Compact replaces the first dropped messages by summary.
func (c *Conversation) Compact(dropped int, summary protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(slices.Concat([]protocol.Message{summary}, c.messages[dropped:]))
}
