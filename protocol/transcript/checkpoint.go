package transcript

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
)

// Checkpoint is a State without its messages. A Compaction and a Reset carry the one that
// holds after them, so that reading can begin there.
type Checkpoint struct {
	// ResetID is the session id of the last Reset; "" if there was none.
	ResetID string `json:"session_id,omitempty" wire:"default"`
	// Kept is how many messages the conversation has after the summary. They are the last
	// message records before this one.
	Kept     uint64   `json:"kept,omitzero" wire:"default"`
	Settings Settings `json:"settings"`
	// LeftOut are the messages that later requests do without, by their places in the conversation,
	// in order.
	LeftOut []Span `json:"left_out,omitempty" wire:"default"`
	// Allowances and Notes are in the order they were made; a note that was
	// taken back is not there.
	Allowances []protocol.Allowance `json:"allowances,omitempty" wire:"default"`
	Notes      []Note               `json:"notes,omitempty" wire:"default"`
	// Usage is the sum over the conversation so far.
	Usage protocol.TurnUsage `json:"usage"`
	// ByModel are the parts of Usage, by PROVIDER/MODEL of the settings then.
	ByModel map[string]protocol.TurnUsage `json:"by_model,omitempty" wire:"default"`
	// Turns is how many turns have ended.
	Turns uint64 `json:"turns,omitzero" wire:"default"`
	// LastOutcome is how the last turn ended; "" before the first.
	LastOutcome Outcome `json:"last_outcome,omitempty" wire:"default"`
	// LastActionAt is the time of the last thing a turn did; zero before the first.
	LastActionAt time.Time `json:"last_action_at,omitzero" wire:"default"`
	// Open is the turn that has begun and not ended; nil if none has.
	Open *OpenTurn `json:"open,omitzero"`
}

// OpenTurn is a turn that has not ended.
type OpenTurn struct {
	TurnID string             `json:"turn_id"`
	Usage  protocol.TurnUsage `json:"usage"` // a part of the session's
}

// Span is a row of messages: from the one at From to the one before To.
type Span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// maxCheckpoint bounds a checkpoint, in bytes. A record that would carry a larger one
// carries none.
const maxCheckpoint = 1 << 20

// clone is c with slices, maps and pointers of its own where apply changes them.
func (c Checkpoint) clone() Checkpoint {
	c.Allowances, c.Notes, c.ByModel = slices.Clone(c.Allowances), slices.Clone(c.Notes), maps.Clone(c.ByModel)
	c.LeftOut = slices.Clone(c.LeftOut)
	if c.Open != nil {
		open := *c.Open
		c.Open = &open
	}
	return c
}

// apply adds one record.
func (c *Checkpoint) apply(r Record) {
	switch r := r.(type) {
	case Settings:
		c.Settings = c.Settings.overlay(r)
	case Message:
		if r.Message.Role == protocol.RoleUser {
			before := protocol.TurnUsage{}
			if c.Open != nil {
				before = c.Open.Usage
			}
			c.Open = &OpenTurn{TurnID: r.Message.TurnID, Usage: before}
		}
		c.LastActionAt = r.Message.At
		c.add(r.Usage)
	case TurnEnd:
		counted := protocol.TurnUsage{}
		if c.Open != nil {
			counted = c.Open.Usage
		}
		c.count(beyond(r.Usage, counted))
		c.Open = nil
		c.Turns++
		c.LastOutcome, c.LastActionAt = r.Outcome, r.At
	case Compaction:
		c.add(r.Usage)
	case Allowance:
		c.Allowances = append(c.Allowances, r.Allowance)
	case Revocation:
		c.Allowances = protocol.Without(c.Allowances, r.Allowances)
	case Note:
		c.note(r)
	case Reset:
		*c = Checkpoint{ResetID: r.SessionID, Settings: c.Settings}
	case Undo:
		c.Open = nil
	case Partial, Unknown, Header:
	}
}

// note keeps the latest note of each key.
func (c *Checkpoint) note(n Note) {
	i := slices.IndexFunc(c.Notes, func(old Note) bool { return old.Key == n.Key })
	switch {
	case n.Data == nil && i >= 0:
		c.Notes = slices.Delete(c.Notes, i, i+1)
	case n.Data == nil:
	case i >= 0:
		c.Notes[i] = n
	default:
		c.Notes = append(c.Notes, n)
	}
}

func (c *Checkpoint) add(usage *protocol.TurnUsage) {
	if usage == nil {
		return
	}
	c.count(*usage)
	if c.Open != nil {
		c.Open.Usage.Add(*usage)
	}
}

// count adds to the sums.
func (c *Checkpoint) count(usage protocol.TurnUsage) {
	c.Usage.Add(usage)
	if c.ByModel == nil {
		c.ByModel = map[string]protocol.TurnUsage{}
	}
	name := protocol.Value(c.Settings.Provider) + "/" + protocol.Value(c.Settings.Model)
	sum := c.ByModel[name]
	sum.Add(usage)
	c.ByModel[name] = sum
}

// beyond is what a turn cost in all and no record of it has counted yet: an
// answer of which nothing was kept.
func beyond(all, counted protocol.TurnUsage) protocol.TurnUsage {
	return protocol.TurnUsage{
		InputTokens:              all.InputTokens - min(all.InputTokens, counted.InputTokens),
		OutputTokens:             all.OutputTokens - min(all.OutputTokens, counted.OutputTokens),
		CacheReadInputTokens:     all.CacheReadInputTokens - min(all.CacheReadInputTokens, counted.CacheReadInputTokens),
		CacheCreationInputTokens: all.CacheCreationInputTokens - min(all.CacheCreationInputTokens, counted.CacheCreationInputTokens),
		Estimated:                all.Estimated,
	}
}

func (s Settings) overlay(later Settings) Settings {
	choose := func(into **string, from *string) {
		if from != nil {
			*into = from
		}
	}
	choose(&s.Model, later.Model)
	choose(&s.Provider, later.Provider)
	choose(&s.Cwd, later.Cwd)
	if later.PromptLayers {
		s.SystemPrompt, s.SystemPromptPath = nil, nil
	}
	choose(&s.SystemPrompt, later.SystemPrompt)
	choose(&s.SystemPromptPath, later.SystemPromptPath)
	choose(&s.ParentAgentID, later.ParentAgentID)
	if later.Depth != nil {
		s.Depth = later.Depth
	}
	if later.Approvals != nil {
		s.Approvals = later.Approvals
	}
	choose(&s.CwdLost, later.CwdLost)
	if later.LostCwd != nil {
		s.LostCwd = later.LostCwd
	}
	if later.Permissions != nil {
		s.Permissions = later.Permissions
	}
	if later.Ceiling != nil {
		s.Ceiling = later.Ceiling
	}
	if later.Granted != nil {
		s.Granted = later.Granted
	}
	choose(&s.GrantedCwd, later.GrantedCwd)
	if later.Turns != nil {
		s.Turns = later.Turns
	}
	if later.Program != nil {
		s.Program = later.Program
	}
	if later.ProgramSession != nil {
		s.ProgramSession = later.ProgramSession
	}
	s.At = later.At
	return s
}

// Writer encodes the records of a session in their order, and gives compactions and resets
// their checkpoints. It holds no messages. It belongs to its caller.
type Writer struct {
	checkpoint Checkpoint
	messages   uint64 // of the conversation
	summaries  uint64 // of these, at their beginning: no message records
	pieces     bool   // there are some since the last whole message
	undone     bool   // as of a State
	since      uint64
	leftOut    []Span
	turn       uint64 // where the open turn begins; noTurn if that is not known
}

const noTurn = math.MaxUint64

// Writer goes on with the session of s.
func (s *State) Writer() Writer {
	return Writer{
		checkpoint: s.Checkpoint.clone(), messages: uint64(len(s.Messages)), summaries: s.summaries, pieces: len(s.text)+len(s.thinking) > 0,
		undone: s.undone, since: s.since, leftOut: s.leftOut(), turn: s.openTurn(),
	}
}

// Clone is w as it is, to go back to.
func (w *Writer) Clone() Writer {
	c := *w
	c.checkpoint, c.leftOut = w.checkpoint.clone(), slices.Clone(w.leftOut)
	return c
}

// Append is the function Append for the next record. If it fails, w is as it was.
func (w *Writer) Append(dst []byte, r Record) ([]byte, error) {
	switch r := r.(type) {
	case Compaction:
		next := w.Clone()
		next.checkpoint.apply(r)
		next.compact(r.Dropped)
		next.messages -= min(r.Dropped, next.messages)
		next.summaries -= min(r.Dropped, next.summaries)
		// An earlier summary that is kept is no message record, the pieces of an answer are in no
		// checkpoint, and the last message records must be those that are kept.
		if r.Dropped <= w.messages && next.summaries == 0 && !w.pieces && (!w.undone || next.messages <= w.since) {
			r.Checkpoint = next.carried()
		}
		if next.messages <= next.since {
			next.undone, next.since = false, 0
		}
		next.messages++
		next.summaries++
		return w.become(next, dst, r)
	case Reset:
		next := w.Clone()
		next.checkpoint.apply(r)
		next.messages, next.summaries, next.pieces, next.undone, next.since = 0, 0, false, false, 0
		next.leftOut, next.turn = nil, noTurn
		r.Checkpoint = next.carried()
		return w.become(next, dst, r)
	default:
		line, err := Append(dst, r)
		if err == nil {
			w.add(r)
		}
		return line, err
	}
}

func (w *Writer) become(next Writer, dst []byte, r Record) ([]byte, error) {
	line, err := Append(dst, r)
	if err == nil {
		*w = next
	}
	return line, err
}

func (w *Writer) add(r Record) {
	open := w.checkpoint.Open != nil
	w.checkpoint.apply(r)
	switch r := r.(type) {
	case Message:
		if r.Message.Role == protocol.RoleUser {
			w.turn = w.messages
		}
		w.messages++
		if w.undone {
			w.since++
		}
		w.pieces = w.pieces && r.Message.Role != protocol.RoleAssistant
	case Partial:
		w.pieces = true
	case TurnEnd:
		if w.pieces = false; r.LeftOut && open && w.turn != noTurn {
			w.leftOut = append(w.leftOut, Span{w.turn, w.messages})
		}
		w.turn = noTurn
	case Undo:
		w.leftOut, w.turn = before(w.leftOut, r.Kept), noTurn
		w.messages, w.summaries = min(w.messages, r.Kept), min(w.summaries, r.Kept)
		w.pieces, w.undone, w.since = false, true, 0
	default:
	}
}

// compact moves the places of messages: the first dropped give way to a summary.
func (w *Writer) compact(dropped uint64) {
	var left []Span
	for _, s := range w.leftOut {
		if s.To > dropped {
			left = append(left, Span{max(s.From, dropped) - dropped + 1, s.To - dropped + 1})
		}
	}
	w.leftOut = left
	switch {
	case w.turn == noTurn:
	case w.turn < dropped:
		w.turn = noTurn
	default:
		w.turn += 1 - dropped
	}
}

// before are the spans of the first n messages.
func before(spans []Span, n uint64) (left []Span) {
	for _, s := range spans {
		if s.From < n {
			left = append(left, Span{s.From, min(s.To, n)})
		}
	}
	return left
}

// carried is the checkpoint for a record; nil if it would be too large.
func (w *Writer) carried() *Checkpoint {
	c := w.checkpoint.clone()
	c.Kept, c.LeftOut = w.messages, w.leftOut
	if data, err := json.Marshal(c); err != nil || len(data) > maxCheckpoint {
		return nil
	}
	return &c
}
