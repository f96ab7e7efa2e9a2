package supervisor

import (
	"slices"
	"sync/atomic"
)

// Reason is what ended an incarnation that was not asked to end (SPEC §5.4).
type Reason string

// The reasons. A crash has exactly one.
const (
	ReasonExit     Reason = "exit"     // it exited, with whatever status
	ReasonSignal   Reason = "signal"   // a signal ended it that was not ours
	ReasonStart    Reason = "start"    // a restart did not become ready, or the server lacked something for it
	ReasonProtocol Reason = "protocol" // a restart was no child of our version: *HandshakeError
	ReasonPing     Reason = "ping"     // it did not answer a ping
	ReasonStdin    Reason = "stdin"    // it did not read its stdin
	ReasonOutput   Reason = "output"   // its stdout was closed, or not to be read as frames
	ReasonCancel   Reason = "cancel"   // it did not honour a cancel
	ReasonLimit    Reason = "limit"    // it went over one of its limits
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonExit, ReasonSignal, ReasonStart, ReasonProtocol, ReasonPing, ReasonStdin, ReasonOutput, ReasonCancel, ReasonLimit,
	}
}

// tally counts by reason. It is safe for concurrent use.
type tally struct{ counts [9]atomic.Uint64 }

// add counts one. A reason that is not listed is a broken invariant.
func (t *tally) add(r Reason) { t.counts[slices.Index(Reasons(), r)].Add(1) }

// snapshot has the reasons that were counted.
func (t *tally) snapshot() map[Reason]uint64 {
	counts := map[Reason]uint64{}
	for i, r := range Reasons() {
		if n := t.counts[i].Load(); n > 0 {
			counts[r] = n
		}
	}
	return counts
}
