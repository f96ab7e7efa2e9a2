package supervisor

import (
	"slices"
	"time"
)

// turnQueue has the turns of one agent: the one that runs, those that wait, those that
// are being recorded and will wait, those whose end is not notified yet, and the last
// that ended. The owner guards it.
type turnQueue struct {
	current   *Turn         // that runs, or has ended and is not notified yet
	waiting   []*Turn       // oldest first; with recording at most Spec.QueueLimit, one more is refused
	recording []*Turn       // are admitted, and not yet in the records
	holder    *Turn         // that has ended, and after which none begins before what belongs to it; nil for none
	known     outcomes      // all others, and the last that ended, by id
	finished  outbox[*Turn] // ended, to be notified in this order; current and waiting bound them

	lastNotified time.Time
}

// running is the turn that runs and has no outcome yet; nil if there is none.
func (q *turnQueue) running() *Turn {
	if q.current == nil || q.current.ended {
		return nil
	}
	return q.current
}

func (q *turnQueue) occupied() bool { return q.current != nil || q.queued() > 0 }

func (q *turnQueue) queued() int { return len(q.waiting) + len(q.recording) }

func (q *turnQueue) waitingIDs() (ids []string) {
	for _, t := range q.waiting {
		ids = append(ids, t.id)
	}
	return ids
}

func (q *turnQueue) all() []*Turn {
	if q.current == nil {
		return slices.Clone(q.waiting)
	}
	return append([]*Turn{q.current}, q.waiting...)
}

// room says which share has no place for one more turn; nil if there is one in each.
func (q *turnQueue) room(limited string, limit int) error {
	return room(limited, 1, limit, "prompts wait", func(counts func(string) bool) int {
		return q.sum(counts, func(*Turn) int { return 1 })
	})
}

// roomFor says which share has no room for the prompt of a turn, in bytes; nil if all have.
func (q *turnQueue) roomFor(limited string, size int) error {
	return room(limited, size, maxWaiting, "bytes of prompts wait", func(counts func(string) bool) int {
		return q.sum(counts, func(t *Turn) int { return t.size })
	})
}

// sum adds up the turns that wait or are being recorded, of those that count.
func (q *turnQueue) sum(counts func(of string) bool, of func(*Turn) int) (n int) {
	for _, turns := range [][]*Turn{q.waiting, q.recording} {
		for _, t := range turns {
			if counts(t.of) {
				n += of(t)
			}
		}
	}
	return n
}

// beingRecorded returns what is closed when the turn of that id is recorded, or is not to
// be; nil if no turn of that id is being recorded.
func (q *turnQueue) beingRecorded(id string) <-chan struct{} {
	i := slices.IndexFunc(q.recording, func(t *Turn) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	t := q.recording[i]
	if t.recorded == nil {
		t.recorded = make(chan struct{})
	}
	return t.recorded
}

// recorded takes a turn from those that are being recorded.
func (q *turnQueue) recorded(t *Turn) {
	q.recording = slices.DeleteFunc(q.recording, func(r *Turn) bool { return r == t })
	if t.recorded != nil {
		close(t.recorded)
	}
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

// Bounds of what is remembered of ended turns, per agent (SPEC §7).
const (
	maxOutcomes    = 256     // turns; the oldest is forgotten
	maxOutcomeText = 1 << 20 // bytes of text of all of them; the oldest lose theirs
)

// outcomes finds turns by id: those that wait or run, and the last ones that
// ended, so that a repeated id gives the same answer. The owner guards it.
type outcomes struct {
	turns map[string]*Turn
	ended []*Turn // oldest first
	text  int     // bytes of text in ended
	bare  int     // how many of ended, from the oldest, have lost their text
}

func (o *outcomes) find(id string) *Turn { return o.turns[id] }

func (o *outcomes) add(t *Turn) {
	if o.turns == nil {
		o.turns = map[string]*Turn{}
	}
	o.turns[t.id] = t
}

// record keeps the result of a turn that has just ended.
func (o *outcomes) record(t *Turn) {
	kept := t.replay()
	kept.text = nil
	o.add(kept)
	o.ended = append(o.ended, kept)
	o.text += len(kept.result.Text)
	for o.text > maxOutcomeText && o.bare < len(o.ended)-1 {
		o.strip(o.ended[o.bare])
		o.bare++
	}
	if len(o.ended) > maxOutcomes {
		oldest := o.ended[0]
		o.ended[0] = nil
		o.ended = o.ended[1:]
		o.bare = max(o.bare-1, 0)
		o.text -= len(oldest.result.Text)
		delete(o.turns, oldest.id)
	}
}

// strip takes the text of a turn. A replay that was handed out keeps its own.
func (o *outcomes) strip(t *Turn) {
	if t.result.Text == "" {
		return
	}
	bare := *t
	o.text -= len(t.result.Text)
	bare.result.Text, bare.result.Truncated = "", true
	o.turns[t.id] = &bare
	o.ended[o.bare] = &bare
}
