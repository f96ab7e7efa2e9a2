// Package conversation holds the messages of a conversation and knows how large they
// are.
//
//	c := conversation.New(restored, conversation.Preamble{System: text, Tools: specs, Model: "m", ContextWindow: 128_000})
//	c.Add(m)
//	old := c.DueForCompaction(80)     // what compaction is to replace now; nil for nothing
//	window, err := c.Fit(0)          // what the next request may carry
//	c.RecordAnswer(window, usage)  // what the provider counted for it, or
//	c.RecordTooLarge(window)       // that it was too much
//
// Sizes in tokens are estimates: a quarter of the bytes, corrected by what the
// provider counted last. They are kept as messages come, so that no call but
// Compact takes longer for a longer conversation, nor any for more than one turn,
// unless a turn that failed is too large for every request.
// What is learned from a provider makes requests smaller, but none impossible.
// A Conversation is safe for concurrent use and starts no goroutine. It refuses to
// part a tool call from its result. See SPEC.md §4.8.
package conversation

import (
	"errors"
	"slices"
	"sync"

	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

const (
	// BytesPerToken is the estimate before the provider has counted anything.
	BytesPerToken = 4
	// messageOverhead is what a message costs beside its text, in bytes.
	messageOverhead = 16
	// maxReserve bounds what is kept free for the answer, in tokens.
	maxReserve = 16_384
	// imageCost is what an image costs, in bytes of text: 1,600 tokens, which is
	// about the most that providers charge for one.
	imageCost = 1600 * BytesPerToken
	// KeepTurns is how many of the last turns compaction leaves alone where
	// they are not too large themselves.
	KeepTurns = 2
)

// MaxAnswer bounds one answer: its text, its reasoning and the inputs of its
// calls, in bytes.
const MaxAnswer = 16 << 20

// ErrTooLarge says that the running turn alone exceeds the context window.
var ErrTooLarge = errors.New("the conversation does not fit the model's context window")

// Preamble is what surrounds the messages of every request.
type Preamble struct {
	System        string
	Tools         []tool.Spec
	Model         string
	ContextWindow uint64 // of the model, in tokens
	// MaxMessages is how many messages a request may carry; 0 means any number.
	// The oldest whole turns leave it, a quarter of that at a time, so that the
	// beginning of requests, which providers cache, seldom changes.
	MaxMessages int
}

// Conversation is one conversation.
type Conversation struct {
	mu sync.RWMutex // guards all below
	// messages are appended to and never changed in place, so that parts of
	// them can be handed out.
	messages      []protocol.Message
	sums          []sum        // of the messages up to and including each one
	unanswered    []unanswered // past turns, the oldest first
	preamble      Preamble
	preambleBytes uint64  // bytes of the preamble
	factor        float64 // tokens counted for each one estimated
	maxBytes      uint64  // bytes of a request, as learned from one that was too large; 0 if none was
	omittedBefore int     // of the running turn, the results of messages before this one are left out of requests
}

// sum is how large a row of messages is, in bytes.
type sum struct {
	text   uint64 // provider.TextBytes
	size   uint64 // with what messages, signatures and calls cost beside their text
	images uint64 // their number
}

func (s sum) minus(o sum) sum { return sum{s.text - o.text, s.size - o.size, s.images - o.images} }

// Window is what of a Conversation goes into a request.
type Window struct {
	// Messages are shared with the Conversation and must not be changed.
	Messages []protocol.Message
	// TextBytes is the sum of provider.TextBytes over them.
	TextBytes uint64
	// Images is how many images the messages have, at most.
	Images uint64
	bytes  uint64
}

// Smaller reports whether the window makes a smaller request than another.
func (w Window) Smaller(than Window) bool { return w.bytes < than.bytes }

// New returns a Conversation of the messages, which it takes over.
func New(messages []protocol.Message, f Preamble) *Conversation {
	c := &Conversation{preamble: f, preambleBytes: uint64(len(f.System)) + f.toolBytes(), factor: 1}
	c.replace(messages)
	return c
}

func (c *Conversation) replace(messages []protocol.Message) {
	c.messages, c.sums, c.unanswered, c.omittedBefore = messages, make([]sum, 0, len(messages)), nil, 0
	c.count(messages)
}

// count goes on with the sums, and with the turns that have no answer.
func (c *Conversation) count(messages []protocol.Message) {
	total := c.sizeBefore(len(c.sums))
	for _, m := range messages {
		if m.Role == protocol.RoleUser {
			c.endTurn(len(c.sums))
		}
		one := size(m)
		total.text += one.text
		total.size += one.size
		total.images += one.images
		c.sums = append(c.sums, total)
	}
}

func (c *Conversation) sizeBefore(n int) sum {
	if n == 0 {
		return sum{}
	}
	return c.sums[n-1]
}

func size(m protocol.Message) sum {
	text := provider.TextBytes(m)
	beside := uint64(len(m.ThinkingSignature) + messageOverhead*(1+len(m.ToolCalls)) + imageCost*len(m.Images))
	return sum{text: text, size: text + beside, images: uint64(len(m.Images))}
}

func (f Preamble) toolBytes() uint64 {
	n := 0
	for _, s := range f.Tools {
		n += messageOverhead + len(s.Name) + len(s.Description) + len(s.InputSchema)
	}
	return uint64(n)
}

// Add appends messages.
func (c *Conversation) Add(messages ...protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, messages...)
	c.count(messages)
}

// Len is the number of messages.
func (c *Conversation) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.messages)
}

// Messages returns all messages. They are shared and must not be changed.
func (c *Conversation) Messages() []protocol.Message {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clip(c.messages)
}

// LastTurn is the id of the last turn and how many messages are before it; ok is false if there is
// none, or a summary stands for all.
func (c *Conversation) LastTurn() (id string, before int, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, m := range slices.Backward(c.messages) {
		if m.Role == protocol.RoleUser {
			return m.TurnID, i, !IsSummary(m)
		}
	}
	return "", 0, false
}

// Truncate leaves the first n messages.
func (c *Conversation) Truncate(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(slices.Clip(c.messages[:n]))
}

// SetModel says which model is asked from now on, and how large its context
// window is, in tokens. What another model counted is forgotten.
func (c *Conversation) SetModel(model string, window uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.preamble.Model == model && c.preamble.ContextWindow == window {
		return
	}
	c.preamble.Model, c.preamble.ContextWindow, c.factor, c.maxBytes = model, window, 1, 0
}

// SetMaxMessages changes how many messages a request may carry; 0 means any number.
func (c *Conversation) SetMaxMessages(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.preamble.MaxMessages = n
}

// SetSystem changes the system prompt of every request.
func (c *Conversation) SetSystem(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.preambleBytes = c.preambleBytes - uint64(len(c.preamble.System)) + uint64(len(text))
	c.preamble.System = text
}

// SetTools changes what the tools of every request are. The slice must not be changed.
func (c *Conversation) SetTools(tools []tool.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.preamble.Tools; len(old) == len(tools) && (len(old) == 0 || &old[0] == &tools[0]) {
		return
	}
	c.preamble.Tools = tools
	c.preambleBytes = uint64(len(c.preamble.System)) + c.preamble.toolBytes()
}

// Clear discards the messages, and forgets how large a request may be.
func (c *Conversation) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(nil)
	c.maxBytes = 0
}

// Breakdown says where the tokens are. All are estimates but Budget.
func (c *Conversation) Breakdown() protocol.ContextTokens {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.breakdown()
}

func (c *Conversation) breakdown() protocol.ContextTokens {
	b := c.surroundings()
	b.Messages = c.tokens(c.sizeFrom(0, c.leftOut(b)).size)
	b.Total = b.System + b.Tools + b.Messages
	return b
}

// surroundings is the breakdown without the messages.
func (c *Conversation) surroundings() protocol.ContextTokens {
	b := protocol.ContextTokens{
		System:    c.tokens(uint64(len(c.preamble.System))),
		Tools:     c.tokens(c.preambleBytes - uint64(len(c.preamble.System))),
		Budget:    c.preamble.ContextWindow,
		Available: c.availableTokens(),
	}
	if c.maxBytes > 0 {
		least := b.System + b.Tools + c.tokens(c.promptBytes())
		b.Available = min(b.Available, max(c.tokens(c.maxBytes), least))
	}
	return b
}

// availableTokens is what of the window, as the configuration has it, a request may take.
func (c *Conversation) availableTokens() uint64 {
	return c.preamble.ContextWindow - min(c.preamble.ContextWindow/4, maxReserve)
}

// promptBytes is how large the message is that began the last turn, in bytes.
func (c *Conversation) promptBytes() uint64 {
	n := c.beforeLast(1, nil)
	return c.sizeBefore(min(n+1, len(c.messages))).minus(c.sizeBefore(n)).size
}

func (c *Conversation) tokens(bytes uint64) uint64 {
	return uint64(float64(estimateTokens(bytes)) * c.factor)
}

// estimateTokens is the estimate as long as nobody has counted.
func estimateTokens(bytes uint64) uint64 { return (bytes + BytesPerToken - 1) / BytesPerToken }

// RecordAnswer learns from a request that was answered: what the provider counted
// for it, and that one as large is not too large.
func (c *Conversation) RecordAnswer(sent Window, u protocol.TurnUsage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes := c.preambleBytes + sent.bytes
	if c.maxBytes > 0 && bytes >= c.maxBytes/4*3 {
		c.maxBytes = max(c.maxBytes, bytes) + c.maxBytes/8
	}
	counted := u.InputTokens // what was read from a cache, and written to one, is part of it
	if counted == 0 || bytes == 0 {
		return
	}
	c.factor = min(max(float64(counted)*BytesPerToken/float64(bytes), 0.25), 4)
}

// RecordTooLarge learns that the provider found a request with the window too large:
// those that follow, to the same model, are smaller by a quarter, until larger
// ones are answered. It reports false, and learns nothing, where the request
// held no more than the prompt of its turn: it cannot be made smaller.
func (c *Conversation) RecordTooLarge(sent Window) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.bytes <= c.promptBytes() {
		return false
	}
	bound := max((c.preambleBytes+sent.bytes)/4*3, 1)
	if c.maxBytes > 0 {
		bound = min(bound, c.maxBytes)
	}
	c.maxBytes = bound
	return true
}

// Estimate is what a request with the window costs, and what a text of that many
// bytes does, in tokens, where nobody has counted them.
func (c *Conversation) Estimate(sent Window, bytes int) (request, text uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tokens(c.preambleBytes + sent.bytes), c.tokens(uint64(bytes))
}

// TextBudget is how many bytes of text a request may carry, about.
func (c *Conversation) TextBudget() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return int(float64(c.breakdown().Available) * BytesPerToken / c.factor)
}
