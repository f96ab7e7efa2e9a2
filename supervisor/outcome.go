package supervisor

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
