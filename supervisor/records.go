package supervisor

import (
	"crypto/sha256"
	"iter"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
)

// Store opens what is kept of agents beyond the life of the server. Package
// supervisor/store has one on disk. It is safe for concurrent use, for different agents.
type Store interface {
	// Open opens the records of an agent, before the agent is started. With fresh those of an
	// earlier agent of that name are removed before. It is not called again for that agent
	// before these are closed.
	Open(agent string, fresh bool) (Records, error)
}

// Records are the numbered events of one agent, which prompts it accepted and how each
// ended (SPEC §5.3, §5.6). The agent owns them from the start to the end and closes them:
// they stay as long as the agent's session does. They are safe for concurrent use.
type Records interface {
	// Last is the number after which events go on; 0 where none was kept.
	Last() uint64
	// Append hands over the next event. It does not wait for the disk.
	Append(e Event)
	// Read gives the events above a number in order, up to the last that was
	// appended when it is ranged over. A number left out is not kept any more. An
	// error ends the sequence.
	Read(after uint64) iter.Seq2[Event, error]
	// Past tells, once, what was recorded before they were opened: the last
	// outcomes, oldest first, then the prompts without one, for which ended is nil.
	Past(yield func(id string, digest [sha256.Size]byte, ended *Result))
	// Find tells how turns ended according to the agent's own session; those that
	// did not end at its own hand are missing.
	Find(ids ...string) (map[string]Result, error)
	// Adopt records a prompt that another machine had accepted, unless it is known; Past gives it then. It comes before Past.
	Adopt(id string, digest [sha256.Size]byte) error
	// Accept records a prompt; after an error it is not to be accepted.
	Accept(id string, digest [sha256.Size]byte) error
	// AcceptUnnamed is Accept of a prompt that nobody can repeat: who else is to know of it learns that a moment later, unless it has ended by then.
	AcceptUnnamed(id string, digest [sha256.Size]byte) error
	// End records the outcome of r.TurnID.
	End(r Result)
	// Overwritten is how often something was written over since they were opened, as the disk took no more, rather than appended.
	Overwritten() uint64
	// Settle returns once all that was recorded is wherever it is kept. The error is ErrMoved, ErrNoRoom or ErrNoMajority: no outcome is
	// to be told that was recorded last, as there may be another one elsewhere.
	Settle() error
	// Origin is the machine from which this one has taken the agent over since the records were opened last.
	Origin() Origin
	Close() error
	// Remove closes them and keeps nothing.
	Remove() error
}

// Origin is a machine of a cluster that had an agent and is gone. The zero value is none.
type Origin struct {
	Machine string
	Left    bool // it had ended; else it was lost
}

// why says why the agent is started here.
func (o Origin) why() string {
	switch {
	case o.Machine == "":
		return ""
	case o.Left:
		return "taken over from the machine " + o.Machine + ", which had left"
	}
	return "taken over from the machine " + o.Machine + ", which was lost"
}

// NoRecords are the [Records] of an agent without records.
type NoRecords struct{}

func (NoRecords) Last() uint64                                                  { return 0 }
func (NoRecords) Append(Event)                                                  {}
func (NoRecords) Read(uint64) iter.Seq2[Event, error]                           { return func(func(Event, error) bool) {} }
func (NoRecords) Past(func(id string, digest [sha256.Size]byte, ended *Result)) {}
func (NoRecords) Find(...string) (map[string]Result, error)                     { return nil, nil }
func (NoRecords) Adopt(string, [sha256.Size]byte) error                         { return nil }
func (NoRecords) Accept(string, [sha256.Size]byte) error                        { return nil }
func (NoRecords) AcceptUnnamed(string, [sha256.Size]byte) error                 { return nil }
func (NoRecords) End(Result)                                                    {}
func (NoRecords) Overwritten() uint64                                           { return 0 }
func (NoRecords) Settle() error                                                 { return nil }
func (NoRecords) Origin() Origin                                                { return Origin{} }
func (NoRecords) Close() error                                                  { return nil }
func (NoRecords) Remove() error                                                 { return nil }

// restore takes up what was recorded when the agent's records were opened, and
// ends what was cut off by the end of an earlier server: as the agent's session
// has it, else as crashed. It comes before the first incarnation.
func (a *Agent) restore() (known outcomes) {
	a.fresh = a.records.Last() == 0
	over := make(chan struct{})
	close(over)
	var cut []*Turn
	a.records.Past(func(id string, digest [sha256.Size]byte, ended *Result) {
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
	found, err := a.records.Find(ids...)
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
		a.records.End(r)
		a.publish("turn_end", turnEndEvent(t.id, r.Outcome, r.Err))
		known.record(t)
	}
	return known
}

// recoverText finds in the event log what was said in turns that were cut off.
func (a *Agent) recoverText(cut []*Turn) {
	byID := make(map[string]*Turn, len(cut))
	for _, t := range cut {
		byID[t.id] = t
	}
	var at *Turn
	for e, err := range a.records.Read(0) {
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
			if at != nil && gjson.GetBytes(e.Data, "turn_id").String() == at.id { // else it is one that waited
				at = nil
			}
		case "message_update":
			if at != nil {
				at.take(e.Data)
			}
		}
	}
}

// closeRecords gives them up; all goroutines of the agent have ended.
func (a *Agent) closeRecords() {
	end := a.records.Close
	if a.fresh && !a.ranBefore() { // it was never there
		end = a.records.Remove
	}
	if err := end(); err != nil {
		a.log.Warn("records not closed well", zap.Error(err))
	}
}
