package clusterchaos

import "fmt"

// seen is an event of an agent that a machine has told.
type seen struct {
	seq  uint64
	from uint64 // of a gap, the first number that is missing; else seq
	gap  bool
	sum  uint64 // of the event; 0 of a gap
	turn string // that has ended with it; "" for none
	// outcome of that turn.
	outcome string
}

// events are those of one agent that were seen, at any machine. One goroutine uses it at a time.
type events struct {
	sums map[uint64]uint64 // by number
	ends map[string]string // outcomes by turn
	gaps int
}

func newEvents() *events { return &events{sums: map[uint64]uint64{}, ends: map[string]string{}} }

// take takes the next event of a subscription whose last one had the number last, 0 for none yet. It says what of it cannot be; "" for nothing.
func (all *events) take(last uint64, e seen) (broken string) {
	switch {
	case e.from <= last:
		return fmt.Sprintf("after event %d comes %d", last, e.from)
	case e.from > last+1 && last > 0:
		return fmt.Sprintf("after event %d comes %d, without a gap", last, e.from)
	case e.seq < e.from:
		return fmt.Sprintf("a gap is from %d to %d", e.from, e.seq)
	case e.gap:
		all.gaps++
		return ""
	}
	if known, ok := all.sums[e.seq]; ok && known != e.sum {
		return fmt.Sprintf("event %d is another one than before", e.seq)
	}
	all.sums[e.seq] = e.sum
	if e.turn == "" {
		return ""
	}
	if known, ok := all.ends[e.turn]; ok && known != e.outcome {
		return fmt.Sprintf("%s has ended as %s, and as %s", e.turn, known, e.outcome)
	}
	all.ends[e.turn] = e.outcome
	return ""
}
