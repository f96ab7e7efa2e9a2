package conversation

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
	// maxMember is how long a member of a call's input may be to stay in a
	// request, in bytes, where room is made.
	maxMember = 256
	// maxInput is how long all members of a call's input may then be together, in bytes.
	maxInput = 16 << 10
	// minShare is the least that is worth showing of a result, in bytes.
	minShare = 512
)

// Fit returns the messages of the next request: all from message from on, which is 0
// or begins a turn; where they exceed what is available or Preamble.MaxMessages,
// the latest whole turns that do not. A turn that failed and alone exceeds what
// is available is left out in any case. Of a last turn that alone exceeds it,
// what its calls carried is left out or cut, the oldest first; the conversation
// itself stays as it is. ErrTooLarge says that not even that helps. What was
// learned from the provider is no reason for it: then the least of a request is
// tried, and the provider has its say.
func (c *Conversation) Fit(from int) (Window, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.breakdown()
	leftOut := c.leftOut(b)
	fits := func(i int) bool {
		return b.System+b.Tools+c.tokens(c.sizeFrom(i, leftOut).size) <= b.Available
	}
	first := max(from, c.omittedByNumber())
	if first == 0 && fits(0) {
		return c.windowFrom(0, leftOut), nil
	}
	first = max(first, 1, sort.Search(len(c.messages), fits))
	for i := first; i < len(c.messages); i++ {
		if c.messages[i].Role == protocol.RoleUser {
			return c.windowFrom(i, leftOut), nil
		}
	}
	last := c.beforeLast(1, nil)
	if fits(last) { // one turn of more than MaxMessages
		return c.windowFrom(last, nil), nil
	}
	return c.truncateResults(last, b)
}

// omittedByNumber is how many of the first messages are left out for their number
// alone.
func (c *Conversation) omittedByNumber() int {
	most := c.preamble.MaxMessages
	if most <= 0 || len(c.messages) <= most {
		return 0
	}
	step := max(most/4, 1)
	return (len(c.messages) - most + step - 1) / step * step
}

// truncateResults makes a request of the turn that begins at message start. What the
// model has seen of its results goes first, the oldest before the others, and a
// quarter more than needed, so that the requests after it can begin as this one
// does. Then the latest results are cut, each to its share. c.mu is held.
func (c *Conversation) truncateResults(start int, b protocol.ContextTokens) (Window, error) {
	w := c.windowFrom(start, nil)
	turn := slices.Clone(w.Messages)
	w.Messages = turn
	put := func(i int, m protocol.Message) {
		old, now := size(turn[i]), size(m)
		w.TextBytes += now.text - old.text
		w.bytes += now.size - old.size
		turn[i] = m
	}
	cost := func() uint64 { return b.System + b.Tools + c.tokens(w.bytes) }
	latest := len(turn) // of the results
	for latest > 1 && turn[latest-1].Role == protocol.RoleTool {
		latest--
	}
	c.omittedBefore = max(c.omittedBefore, start)
	goal := b.Available
	for i := 0; i < latest && (start+i < c.omittedBefore || cost() > goal); i++ {
		put(i, omit(turn[i]))
		if start+i >= c.omittedBefore {
			c.omittedBefore, goal = start+i+1, b.Available*3/4
		}
	}
	if cost() > b.Available {
		whole := slices.Clone(turn[latest:])
		for i, m := range whole {
			m.Content, m.Images = "", nil
			put(latest+i, m)
		}
		room := float64(b.Available-min(cost(), b.Available)) * BytesPerToken / c.factor
		for i, m := range allocate(whole, int(room)) {
			put(latest+i, m)
		}
	}
	system := uint64(len(c.preamble.System))
	uncounted := estimateTokens(system) + estimateTokens(c.preambleBytes-system) + estimateTokens(w.bytes)
	if cost() > b.Available && uncounted > c.availableTokens() {
		return Window{}, fmt.Errorf("%w: about %d tokens, %d available", ErrTooLarge, cost(), b.Available)
	}
	return w, nil
}

// allocate cuts results so that they have at most room bytes together. The
// shortest stay whole as long as they can: what they do not need is for the
// others.
func allocate(results []protocol.Message, room int) []protocol.Message {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(results[a].Content) - len(results[b].Content) })
	for n, i := range order {
		m := &results[i]
		m.Images = nil
		if most := room / (len(order) - n); len(m.Content) > most {
			m.Content = truncate(m.Content, most)
		}
		room = max(room-len(m.Content), 0)
	}
	return results
}

// truncate is the head of a result, with a note, in at most that many bytes
// if that is enough for the note.
func truncate(text string, most int) string {
	note := func(missing int) string {
		return fmt.Sprintf("\n[%d of %d bytes left out: they do not fit the context window]", missing, len(text))
	}
	most -= len(note(len(text)))
	if most < minShare {
		return omissionNote(text)
	}
	head := textcut.Head(text, most)
	return head + note(len(text)-len(head))
}

// omissionNote stands for a result; a shorter one stands for itself.
func omissionNote(text string) string {
	if note := fmt.Sprintf("[result of %d bytes left out]", len(text)); len(note) < len(text) {
		return note
	}
	return text
}

// omit is a message that the model has seen, without what makes it long: the
// result of a call, or the long members of the inputs of calls.
func omit(m protocol.Message) protocol.Message {
	switch m.Role {
	case protocol.RoleTool:
		m.Content, m.Images = omissionNote(m.Content), nil
	case protocol.RoleAssistant:
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for i, call := range m.ToolCalls {
			m.ToolCalls[i].Input = truncateInput(call.Input)
		}
	case protocol.RoleUser, protocol.RoleSystem:
	}
	return m
}

// truncateInput is the input of a call without its long members. It is an object, as some services
// take nothing else, also where the model wrote none.
func truncateInput(input jsontext.Value) jsontext.Value {
	if len(input) <= maxMember {
		return input
	}
	var members map[string]jsontext.Value
	if json.Unmarshal(input, &members) != nil {
		return inputNote(input)
	}
	for name, value := range members {
		if len(value) > maxMember {
			members[name] = jsontext.Value(fmt.Sprintf(`"[%d bytes left out]"`, len(value)))
		}
	}
	short, err := json.Marshal(members, json.Deterministic(true))
	if err != nil || len(short) > maxInput {
		return inputNote(input)
	}
	return short
}

// inputNote stands for the input of a call.
func inputNote(input jsontext.Value) jsontext.Value {
	return jsontext.Value(fmt.Sprintf(`{"input":"[%d bytes left out]"}`, len(input)))
}
