package supervisor

import (
	"crypto/sha256"
	"errors"
	"iter"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
)

// Memory is what an agent remembers beyond the life of the server: its events
// and how its prompts ended (SPEC §5.3, §5.6). The agent owns it from the start
// to the end and closes it: it stays as long as the agent's session does. A nil
// part remembers nothing.
type Memory struct {
	Events   EventLog
	Outcomes OutcomeLog
}

// EventLog keeps the numbered events of one agent. Package supervisor/eventlog
// has one on disk. It is safe for concurrent use.
type EventLog interface {
	// Last is the number after which numbers go on; 0 for a new log.
	Last() uint64
	// Append hands over the next event. It does not wait for the disk.
	Append(e Event)
	// Read gives the events above a number in order, up to the last that was
	// appended when it is ranged over. A number left out is not kept any more. An
	// error ends the sequence.
	Read(after uint64) iter.Seq2[Event, error]
	Close() error
	// Remove closes it and takes it off the disk.
	Remove() error
}

// OutcomeLog records which prompts were accepted and how each ended. Package
// supervisor/outcomes has one on disk. It is safe for concurrent use.
type OutcomeLog interface {
	// Past tells, once, what was recorded before it was opened: the last
	// outcomes, oldest first, then the prompts without one, for which ended is nil.
	Past(yield func(id string, digest [sha256.Size]byte, ended *Result))
	// Find tells how turns ended according to the agent's own session; those that
	// did not end at its own hand are missing.
	Find(ids ...string) (map[string]Result, error)
	// Accept records a prompt; after an error it is not to be accepted.
	Accept(id string, digest [sha256.Size]byte) error
	// End records the outcome of r.TurnID.
	End(r Result)
	Close() error
	// Remove closes it and takes it off the disk.
	Remove() error
}

// restore takes up what was remembered when the agent's memory was opened, and
// ends what was cut off by the end of an earlier server: as the agent's session
// has it, else as crashed. It comes before the first incarnation.
func (a *Agent) restore() (known outcomes) {
	a.fresh = a.memory.Events == nil || a.memory.Events.Last() == 0
	if a.memory.Outcomes == nil {
		return known
	}
	over := make(chan struct{})
	close(over)
	var cut []*Turn
	a.memory.Outcomes.Past(func(id string, digest [sha256.Size]byte, ended *Result) {
		a.fresh = false
		t := &Turn{id: id, digest: digest, agent: a, done: over, ended: true}
		if ended == nil {
			cut = append(cut, t)
			return
		}
		t.result = *ended
		known.record(t)
	})
	if len(cut) == 0 {
		return known
	}
	ids := make([]string, len(cut))
	for i, t := range cut {
		ids[i] = t.id
	}
	found, err := a.memory.Outcomes.Find(ids...)
	if err != nil {
		a.log.Warn("turns that were cut off are not looked for", zap.Error(err))
	}
	a.recoverText(cut)
	for _, t := range cut {
		r, ok := found[t.id]
		if !ok {
			r = Result{
				TurnID: t.id, Outcome: Crashed, Text: string(t.text), Truncated: t.truncated,
				Err: &CrashError{Cause: "the server ended before the turn did"},
			}
		}
		r.Attempt = t.attempt
		t.result, t.text = r, nil
		a.memory.Outcomes.End(r)
		a.publish("turn_end", turnEndEvent(t.id, r.Outcome, r.Err))
		known.record(t)
	}
	return known
}

// recoverText finds in the event log what was said in turns that were cut off.
func (a *Agent) recoverText(cut []*Turn) {
	if a.memory.Events == nil {
		return
	}
	byID := make(map[string]*Turn, len(cut))
	for _, t := range cut {
		byID[t.id] = t
	}
	var at *Turn
	for e, err := range a.memory.Events.Read(0) {
		if err != nil {
			a.log.Warn("what was said before the server ended is not read", zap.Error(err))
			return
		}
		switch e.Type {
		case "turn_start":
			if at = byID[gjson.GetBytes(e.Data, "turn_id").String()]; at != nil {
				at.begin(0)
			}
		case "turn_end":
			at = nil
		case "message_update":
			if at != nil {
				at.take(e.Data)
			}
		}
	}
}

// closeMemory gives up what the agent has of it; all its goroutines have ended.
func (a *Agent) closeMemory() {
	remove := a.fresh && !a.ranBefore() // it was never there
	var errs []error
	if l := a.memory.Events; l != nil && remove {
		errs = append(errs, l.Remove())
	} else if l != nil {
		errs = append(errs, l.Close())
	}
	if l := a.memory.Outcomes; l != nil && remove {
		errs = append(errs, l.Remove())
	} else if l != nil {
		errs = append(errs, l.Close())
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("memory not closed well", zap.Error(err))
	}
}
