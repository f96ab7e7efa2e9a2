package dialog

import (
	"fmt"
	"slices"
	"sort"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// longInput is how long a member of a call's input may be to stay in a
	// request, in bytes, where room is made.
	longInput = 256
	// leastShare is the least that is worth showing of a result, in bytes.
	leastShare = 512
)

// Fit returns the messages of the next request: all, or where they exceed what
// is available or Frame.MaxMessages, the latest whole turns that do not. Of a
// last turn that alone exceeds it, what its calls carried is left out or cut,
// the oldest first; the dialog itself stays as it is. ErrTooLarge says that not
// even that helps. What was learned from the provider is no reason for it: then
// the least of a request is tried, and the provider has its say.
func (d *Dialog) Fit() (Part, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.breakdown()
	total := d.before(len(d.messages))
	fits := func(i int) bool {
		return b.System+b.Tools+d.tokens(total.minus(d.before(i)).size) <= b.Available
	}
	first := d.beyondMax()
	if first == 0 && fits(0) {
		return d.from(0), nil
	}
	first = max(first, 1, sort.Search(len(d.messages), fits))
	for i := first; i < len(d.messages); i++ {
		if d.messages[i].Role == protocol.RoleUser {
			return d.from(i), nil
		}
	}
	last := d.beforeLast(1)
	if fits(last) { // one turn of more than MaxMessages
		return d.from(last), nil
	}
	return d.squeeze(last, b)
}

// beyondMax is how many of the first messages are left out for their number
// alone.
func (d *Dialog) beyondMax() int {
	most := d.frame.MaxMessages
	if most <= 0 || len(d.messages) <= most {
		return 0
	}
	step := max(most/4, 1)
	return (len(d.messages) - most + step - 1) / step * step
}

// squeeze makes a request of the turn that begins at message start. What the
// model has seen of its results goes first, the oldest before the others, and a
// quarter more than needed, so that the requests after it can begin as this one
// does. Then the latest results are cut, each to its share. d.mu is held.
func (d *Dialog) squeeze(start int, b protocol.ContextTokens) (Part, error) {
	p := d.from(start)
	turn := slices.Clone(p.Messages)
	p.Messages = turn
	put := func(i int, m protocol.Message) {
		old, now := size(turn[i]), size(m)
		p.TextBytes += now.text - old.text
		p.size += now.size - old.size
		turn[i] = m
	}
	cost := func() uint64 { return b.System + b.Tools + d.tokens(p.size) }
	latest := len(turn) // of the results
	for latest > 1 && turn[latest-1].Role == protocol.RoleTool {
		latest--
	}
	d.left = max(d.left, start)
	goal := b.Available
	for i := 0; i < latest && (start+i < d.left || cost() > goal); i++ {
		put(i, without(turn[i]))
		if start+i >= d.left {
			d.left, goal = start+i+1, b.Available*3/4
		}
	}
	if cost() > b.Available {
		whole := slices.Clone(turn[latest:])
		for i, m := range whole {
			m.Content, m.Images = "", nil
			put(latest+i, m)
		}
		room := float64(b.Available-min(cost(), b.Available)) * BytesPerToken / d.factor
		for i, m := range shares(whole, int(room)) {
			put(latest+i, m)
		}
	}
	system := uint64(len(d.frame.System))
	uncounted := inTokens(system) + inTokens(d.around-system) + inTokens(p.size)
	if cost() > b.Available && uncounted > d.windowRoom() {
		return Part{}, fmt.Errorf("%w: about %d tokens, %d available", ErrTooLarge, cost(), b.Available)
	}
	return p, nil
}

// shares cuts results so that they have at most room bytes together. The
// shortest stay whole as long as they can: what they do not need is for the
// others.
func shares(results []protocol.Message, room int) []protocol.Message {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(results[a].Content) - len(results[b].Content) })
	for n, i := range order {
		m := &results[i]
		m.Images = nil
		if most := room / (len(order) - n); len(m.Content) > most {
			m.Content = shortened(m.Content, most)
		}
		room = max(room-len(m.Content), 0)
	}
	return results
}

// shortened is the head of a result, with a note, in at most that many bytes
// if that is enough for the note.
func shortened(text string, most int) string {
	note := func(missing int) string {
		return fmt.Sprintf("\n[%d of %d bytes left out: they do not fit the context window]", missing, len(text))
	}
	most -= len(note(len(text)))
	if most < leastShare {
		return leftOut(text)
	}
	head := textcut.Head(text, most)
	return head + note(len(text)-len(head))
}

// leftOut stands for a result; a shorter one stands for itself.
func leftOut(text string) string {
	if note := fmt.Sprintf("[result of %d bytes left out]", len(text)); len(note) < len(text) {
		return note
	}
	return text
}

// without is a message that the model has seen, without what makes it long: the
// result of a call, or the long members of the inputs of calls.
func without(m protocol.Message) protocol.Message {
	switch m.Role {
	case protocol.RoleTool:
		m.Content, m.Images = leftOut(m.Content), nil
	case protocol.RoleAssistant:
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for i, call := range m.ToolCalls {
			m.ToolCalls[i].Input = shortInput(call.Input)
		}
	case protocol.RoleUser, protocol.RoleSystem:
	}
	return m
}

// shortInput is the input of a call without its long members.
func shortInput(input jsontext.Value) jsontext.Value {
	if len(input) <= longInput {
		return input
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(input, &members) != nil {
		return input
	}
	for name, value := range members {
		if len(value) > longInput {
			members[name] = jsontext.Value(fmt.Sprintf(`"[%d bytes left out]"`, len(value)))
		}
	}
	short, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return input
	}
	return short
}
