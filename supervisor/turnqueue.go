package supervisor

import (
	"slices"
	"time"
)

// turnQueue has the turns of one agent: the one that runs, those that wait, those whose
// end is not notified yet, and the last that ended. The owner guards it.
type turnQueue struct {
	current  *Turn         // that runs, or has ended and is not notified yet
	waiting  []*Turn       // oldest first; at most Spec.QueueLimit, one more is refused
	known    outcomes      // all of them, and the last that ended, by id
	finished outbox[*Turn] // ended, to be notified in this order; current and waiting bound them

	lastNotified time.Time
}

// running is the turn that runs and has no outcome yet; nil if there is none.
func (q *turnQueue) running() *Turn {
	if q.current == nil || q.current.ended {
		return nil
	}
	return q.current
}

// occupied reports whether a turn runs or waits.
func (q *turnQueue) occupied() bool { return q.current != nil || len(q.waiting) > 0 }

// all are the turns that run or wait.
func (q *turnQueue) all() []*Turn {
	if q.current == nil {
		return slices.Clone(q.waiting)
	}
	return append([]*Turn{q.current}, q.waiting...)
}

// bytes is how much the prompts count that wait, in bytes.
func (q *turnQueue) bytes() int {
	n := 0
	for _, t := range q.waiting {
		n += t.size
	}
	return n
}

func (q *turnQueue) enqueue(t *Turn)      { q.waiting = append(q.waiting, t) }
func (q *turnQueue) enqueueFirst(t *Turn) { q.waiting = append([]*Turn{t}, q.waiting...) }

// first is the turn that is to begin next; nil if none waits.
func (q *turnQueue) first() *Turn {
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// begin makes the first turn the current one.
func (q *turnQueue) begin() {
	q.current = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
}

// retry lets the current turn wait again, before all others.
func (q *turnQueue) retry() {
	q.enqueueFirst(q.current)
	q.current = nil
}

func (q *turnQueue) remove(t *Turn) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *Turn) bool { return w == t })
}

// removeAll takes all turns that wait.
func (q *turnQueue) removeAll() []*Turn {
	all := q.waiting
	q.waiting = nil
	return all
}

// notified ends a turn: it is current no more, and its outcome is known.
func (q *turnQueue) notified(t *Turn) {
	if q.current == t {
		q.current = nil
	}
	q.known.record(t)
	q.lastNotified = time.Now()
}

// late reports whether somebody waits for the disk to notify, or did until just now.
func (q *turnQueue) late() bool { return q.finished.claimed || time.Since(q.lastNotified) < lateness }
