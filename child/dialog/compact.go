package dialog

import (
	"fmt"
	"slices"

	"nexus.internal/protocol"
)

// Cut says how many of the first messages compaction may replace: those before
// the last keep turns. If there are too few, ok is false and why says so. The
// messages are shared and must not be changed.
func (d *Dialog) Cut(keep int) (old []protocol.Message, ok bool, why string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.cut(keep)
}

func (d *Dialog) cut(keep int) (old []protocol.Message, ok bool, why string) {
	n := d.beforeLast(keep)
	switch {
	case n == 0:
		kept := fmt.Sprintf("the last %d turns are always kept", keep)
		if keep == 1 {
			kept = "the last turn is always kept"
		}
		return nil, false, fmt.Sprintf("too little to summarise: %d messages, and %s", len(d.messages), kept)
	case n == 1 && IsSummary(d.messages[0]):
		return nil, false, "nothing has been said since the last summary that is old enough to summarise"
	}
	return slices.Clip(d.messages[:n]), true, ""
}

// beforeLast is how many messages there are before the last turns; 0 if these
// are all. d.mu is held.
func (d *Dialog) beforeLast(turns int) int {
	for i := len(d.messages) - 1; i > 0; i-- {
		if d.messages[i].Role == protocol.RoleUser {
			if turns--; turns == 0 {
				return i
			}
		}
	}
	return 0
}

// Due says which of the first messages compaction is to replace once the
// conversation takes percent of what is available; nil if it does not, or if
// there are none. The last KeepTurns turns are kept if that makes enough room,
// else the last one. The messages are shared and must not be changed.
func (d *Dialog) Due(percent int) []protocol.Message {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.breakdown()
	limit := b.Available * uint64(percent) / 100
	if b.Total < limit {
		return nil
	}
	keep := KeepTurns
	if n := d.beforeLast(keep); n == 0 || b.System+b.Tools+d.tokens(d.from(n).size) >= limit {
		keep = 1
	}
	old, _, _ := d.cut(keep)
	return old
}

// Would says how large the dialog would be with its first dropped messages
// replaced by summary.
func (d *Dialog) Would(dropped int, summary protocol.Message) (before, after uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.breakdown()
	left := d.from(dropped).size + size(summary).size
	return b.Total, b.System + b.Tools + d.tokens(left)
}

// Compact replaces the first dropped messages by summary.
func (d *Dialog) Compact(dropped int, summary protocol.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(slices.Concat([]protocol.Message{summary}, d.messages[dropped:]))
}
