package conversation

import (
	"slices"

	"nexus.internal/protocol"
)

// unanswered is a past turn that ended without a whole answer.
type unanswered struct {
	begin, end int    // its messages
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
	t := unanswered{begin: begin, end: end}
	for _, m := range c.messages[begin:end] {
		t.least += size(omit(m)).size
	}
	c.unanswered = append(c.unanswered, t)
}

// tooLarge returns the unanswered turns that no request can carry: even
// shortened they alone exceed what b has available, by what the provider
// counted or by the estimate. A prompt that does not fit is such a turn, or an
// answer without an end. The others are sent without them. c.mu is held.
func (c *Conversation) tooLarge(b protocol.ContextTokens) []unanswered {
	var all []unanswered
	for _, t := range c.unanswered {
		if b.System+b.Tools+max(c.tokens(t.least), estimateTokens(t.least)) > b.Available {
			all = append(all, t)
		}
	}
	return all
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
