package conversation

import (
	"slices"

	"nexus.internal/protocol"
)

// unanswered is a turn that ended without a whole answer.
type unanswered struct {
	begin, end int    // its messages
	refused    bool   // by the model's service
	least      uint64 // bytes of it with its results and the inputs of its calls left out
}

// endTurn notes the turn that ends before message end, if it has no whole answer.
func (c *Conversation) endTurn(end int) {
	if end == 0 {
		return
	}
	if last := c.messages[end-1]; last.Role == protocol.RoleAssistant && !last.Interrupted || IsSummary(last) {
		return
	}
	begin := end - 1
	for begin > 0 && c.messages[begin].Role != protocol.RoleUser {
		begin--
	}
	if n := len(c.unanswered); n > 0 && c.unanswered[n-1].begin == begin {
		return // it was noted when it was refused
	}
	t := unanswered{begin: begin, end: end, refused: c.messages[begin].LeftOut}
	for _, m := range c.messages[begin:end] {
		t.least += size(omit(m)).size
	}
	c.unanswered = append(c.unanswered, t)
}

// leftOut returns the unanswered turns that no request is to carry: those that were refused, and
// those that no request can carry: even
// shortened they alone exceed what b has available, by what the provider
// counted or by the estimate. A prompt that does not fit is such a turn, or an
// answer without an end. The others are sent without them. c.mu is held.
func (c *Conversation) leftOut(b protocol.ContextTokens) []unanswered {
	var all []unanswered
	for _, t := range c.unanswered {
		if t.refused || b.System+b.Tools+max(c.tokens(t.least), estimateTokens(t.least)) > b.Available {
			all = append(all, t)
		}
	}
	return all
}

// LeaveOut leaves the last turn, which has ended, out of all requests to come: the model's service
// has refused it.
func (c *Conversation) LeaveOut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	begin := c.beforeLast(1, nil)
	if begin == len(c.messages) || c.messages[begin].Role != protocol.RoleUser {
		return
	}
	messages := slices.Clone(c.messages)
	for i := begin; i < len(messages); i++ {
		messages[i].LeftOut = true
	}
	c.messages = messages
	c.endTurn(len(messages))
}

// sizeFrom is how large the messages from the nth on are, without those of the
// turns that are left out.
func (c *Conversation) sizeFrom(n int, leftOut []unanswered) sum {
	all := c.sizeBefore(len(c.messages)).minus(c.sizeBefore(n))
	for _, t := range leftOut {
		if t.end > n {
			all = all.minus(c.sizeBefore(t.end).minus(c.sizeBefore(max(t.begin, n))))
		}
	}
	return all
}

// windowFrom is the window that begins at the nth message, without the turns
// that are left out.
func (c *Conversation) windowFrom(n int, leftOut []unanswered) Window {
	total := c.sizeFrom(n, leftOut)
	var parts [][]protocol.Message
	for _, t := range leftOut {
		if t.begin >= n {
			parts = append(parts, c.messages[n:t.begin])
			n = t.end
		}
	}
	messages := c.messages[n:]
	if len(parts) > 0 {
		messages = slices.Concat(append(parts, messages)...)
	}
	return Window{Messages: slices.Clip(messages), TextBytes: total.text, Images: total.images, bytes: total.size}
}

// beforeLast is how many messages there are before the last turns, of which
// those that are left out do not count; 0 if these are all. c.mu is held.
func (c *Conversation) beforeLast(turns int, leftOut []unanswered) int {
	for i := len(c.messages) - 1; i > 0; i-- {
		if c.messages[i].Role != protocol.RoleUser || slices.ContainsFunc(leftOut, func(t unanswered) bool { return t.begin == i }) {
			continue
		}
		if turns--; turns == 0 {
			return i
		}
	}
	return 0
}
