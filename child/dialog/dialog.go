// Package dialog holds the messages of a conversation and knows how large they
// are.
//
//	d := dialog.New(restored, dialog.Frame{System: text, Tools: specs, Model: "m", Window: 128_000})
//	d.Add(m)
//	old := d.Due(80)         // what compaction is to replace now; nil for nothing
//	part, err := d.Fit()     // what the next request may carry
//	d.Answered(part, usage)  // what the provider counted for it, or
//	d.Exceeded(part)         // that it was too much
//
// Sizes in tokens are estimates: a quarter of the bytes, corrected by what the
// provider counted last. They are kept as messages come, so that no call but
// Compact takes longer for a longer conversation, nor any for more than one turn.
// What is learned from a provider makes requests smaller, but none impossible.
// A Dialog is safe for concurrent use and starts no goroutine. It refuses to
// part a tool call from its result. See SPEC.md §4.8.
package dialog

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

// Frame is what surrounds the messages of every request.
type Frame struct {
	System string
	Tools  []tool.Spec
	Model  string
	Window uint64 // of the model, in tokens
	// MaxMessages is how many messages a request may carry; 0 means any number.
	// The oldest whole turns leave it, a quarter of that at a time, so that the
	// beginning of requests, which providers cache, seldom changes.
	MaxMessages int
}

// Dialog is one conversation.
type Dialog struct {
	mu sync.RWMutex // guards all below
	// messages are appended to and never changed in place, so that parts of
	// them can be handed out.
	messages []protocol.Message
	sums     []sum // of the messages up to and including each one
	frame    Frame
	around   uint64  // bytes of the frame
	factor   float64 // tokens counted for each one estimated
	bound    uint64  // bytes of a request, as learned from one that was too large; 0 if none was
	left     int     // of the running turn, the results of messages before this one are left out of requests
}

// sum is how large a row of messages is, in bytes.
type sum struct {
	text uint64 // provider.TextBytes
	size uint64 // with what messages, signatures and calls cost beside their text
}

func (s sum) minus(o sum) sum { return sum{s.text - o.text, s.size - o.size} }

// Part is what of a Dialog goes into a request.
type Part struct {
	// Messages are shared with the Dialog and must not be changed.
	Messages []protocol.Message
	// TextBytes is the sum of provider.TextBytes over them.
	TextBytes uint64
	size      uint64
}

// Smaller reports whether the part makes a smaller request than another.
func (p Part) Smaller(than Part) bool { return p.size < than.size }

// New returns a Dialog of the messages, which it takes over.
func New(messages []protocol.Message, f Frame) *Dialog {
	d := &Dialog{frame: f, around: uint64(len(f.System)) + f.toolBytes(), factor: 1}
	d.replace(messages)
	return d
}

func (d *Dialog) replace(messages []protocol.Message) {
	d.messages, d.sums, d.left = messages, make([]sum, 0, len(messages)), 0
	d.count(messages)
}

// count goes on with the sums.
func (d *Dialog) count(messages []protocol.Message) {
	total := d.before(len(d.sums))
	for _, m := range messages {
		one := size(m)
		total.text += one.text
		total.size += one.size
		d.sums = append(d.sums, total)
	}
}

// before is how large the first n messages are.
func (d *Dialog) before(n int) sum {
	if n == 0 {
		return sum{}
	}
	return d.sums[n-1]
}

// from is the part that begins at the nth message.
func (d *Dialog) from(n int) Part {
	rest := d.before(len(d.messages)).minus(d.before(n))
	return Part{Messages: slices.Clip(d.messages[n:]), TextBytes: rest.text, size: rest.size}
}

func size(m protocol.Message) sum {
	text := provider.TextBytes(m)
	beside := uint64(len(m.ThinkingSignature) + messageOverhead*(1+len(m.ToolCalls)) + imageCost*len(m.Images))
	return sum{text: text, size: text + beside}
}

func (f Frame) toolBytes() uint64 {
	n := 0
	for _, s := range f.Tools {
		n += messageOverhead + len(s.Name) + len(s.Description) + len(s.InputSchema)
	}
	return uint64(n)
}

// Add appends messages.
func (d *Dialog) Add(messages ...protocol.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.messages = append(d.messages, messages...)
	d.count(messages)
}

// Len is the number of messages.
func (d *Dialog) Len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.messages)
}

// Messages returns all messages. They are shared and must not be changed.
func (d *Dialog) Messages() []protocol.Message {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clip(d.messages)
}

// SetModel says which model is asked from now on, and how large its context
// window is, in tokens. What another model counted is forgotten.
func (d *Dialog) SetModel(model string, window uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frame.Model == model && d.frame.Window == window {
		return
	}
	d.frame.Model, d.frame.Window, d.factor, d.bound = model, window, 1, 0
}

// SetSystem changes the system prompt of every request.
func (d *Dialog) SetSystem(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.around = d.around - uint64(len(d.frame.System)) + uint64(len(text))
	d.frame.System = text
}

// SetTools changes what the tools of every request are.
func (d *Dialog) SetTools(tools []tool.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frame.Tools = tools
	d.around = uint64(len(d.frame.System)) + d.frame.toolBytes()
}

// Clear discards the messages, and forgets how large a request may be.
func (d *Dialog) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(nil)
	d.bound = 0
}

// Breakdown says where the tokens are. All are estimates but Budget.
func (d *Dialog) Breakdown() protocol.ContextTokens {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.breakdown()
}

func (d *Dialog) breakdown() protocol.ContextTokens {
	b := protocol.ContextTokens{
		System:   d.tokens(uint64(len(d.frame.System))),
		Tools:    d.tokens(d.around - uint64(len(d.frame.System))),
		Messages: d.tokens(d.before(len(d.messages)).size),
		Budget:   d.frame.Window,
	}
	b.Total = b.System + b.Tools + b.Messages
	b.Available = d.windowRoom()
	if d.bound > 0 {
		least := b.System + b.Tools + d.tokens(d.prompt())
		b.Available = min(b.Available, max(d.tokens(d.bound), least))
	}
	return b
}

// windowRoom is what of the window, as the configuration has it, a request may take.
func (d *Dialog) windowRoom() uint64 { return d.frame.Window - min(d.frame.Window/4, maxReserve) }

// prompt is how large the message is that began the last turn, in bytes.
func (d *Dialog) prompt() uint64 {
	n := d.beforeLast(1)
	return d.before(min(n+1, len(d.messages))).minus(d.before(n)).size
}

func (d *Dialog) tokens(bytes uint64) uint64 {
	return uint64(float64(inTokens(bytes)) * d.factor)
}

// inTokens is the estimate as long as nobody has counted.
func inTokens(bytes uint64) uint64 { return (bytes + BytesPerToken - 1) / BytesPerToken }

// Answered learns from a request that was answered: what the provider counted
// for it, and that one as large is not too large.
func (d *Dialog) Answered(sent Part, u protocol.TurnUsage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes := d.around + sent.size
	if d.bound > 0 && bytes >= d.bound/4*3 {
		d.bound = max(d.bound, bytes) + d.bound/8
	}
	counted := u.InputTokens // what was read from a cache, and written to one, is part of it
	if counted == 0 || bytes == 0 {
		return
	}
	d.factor = min(max(float64(counted)*BytesPerToken/float64(bytes), 0.25), 4)
}

// Exceeded learns that the provider found a request with the part too large:
// those that follow, to the same model, are smaller by a quarter, until larger
// ones are answered. It reports false, and learns nothing, where the request
// held no more than the prompt of its turn: it cannot be made smaller.
func (d *Dialog) Exceeded(sent Part) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sent.size <= d.prompt() {
		return false
	}
	bound := max((d.around+sent.size)/4*3, 1)
	if d.bound > 0 {
		bound = min(bound, d.bound)
	}
	d.bound = bound
	return true
}

// Estimate is what a request with the part costs, and what a text of that many
// bytes does, in tokens, where nobody has counted them.
func (d *Dialog) Estimate(sent Part, bytes int) (request, text uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.tokens(d.around + sent.size), d.tokens(uint64(bytes))
}

// Room is how many bytes of text a request may carry, about.
func (d *Dialog) Room() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(float64(d.breakdown().Available) * BytesPerToken / d.factor)
}
