// Package dialog holds the messages of a conversation and knows how large they
// are.
//
//	d := dialog.New(restored, dialog.Frame{System: text, Tools: specs, Window: 128_000})
//	d.Add(m)
//	part, err := d.Fit()     // what the next request may carry
//	d.Calibrate(part, usage) // what the provider counted for it
//	cut, ok, why := d.Cut()      // where compaction may divide it
//
// Sizes in tokens are estimates: a quarter of the bytes, corrected by what the
// provider counted last. They are kept as messages come, so that no call but
// Compact takes longer for a longer conversation. A Dialog is safe for concurrent use and starts no
// goroutine. It refuses to part a tool call from its result. See SPEC.md §4.
package dialog

import (
	"errors"
	"fmt"
	"slices"
	"sort"
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
	// KeepTurns is how many of the last turns compaction leaves alone.
	KeepTurns = 2
)

// ErrTooLarge says that the running turn alone exceeds the context window.
var ErrTooLarge = errors.New("the conversation does not fit the model's context window")

// Frame is what surrounds the messages of every request.
type Frame struct {
	System string
	Tools  []tool.Spec
	Window uint64 // of the model, in tokens
}

// Breakdown says where the tokens are. All are estimates but Budget.
type Breakdown struct {
	System   uint64 `json:"system"`
	Tools    uint64 `json:"tools"`
	Messages uint64 `json:"messages"`
	Total    uint64 `json:"total"`
	// Budget is the model's context window; Available is what of it a request
	// may take: the rest is kept free for the answer.
	Budget    uint64 `json:"budget"`
	Available uint64 `json:"available"`
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
}

// sum is how large a row of messages is, in bytes.
type sum struct {
	text uint64 // provider.TextBytes
	size uint64 // with what messages and calls cost beside their text
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

// New returns a Dialog of the messages, which it takes over.
func New(messages []protocol.Message, f Frame) *Dialog {
	d := &Dialog{frame: f, around: uint64(len(f.System)) + f.toolBytes(), factor: 1}
	d.replace(messages)
	return d
}

func (d *Dialog) replace(messages []protocol.Message) {
	d.messages, d.sums = messages, make([]sum, 0, len(messages))
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
	return sum{text: text, size: text + messageOverhead*uint64(1+len(m.ToolCalls))}
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

// SetWindow changes the size of the context window, in tokens, and forgets
// what another model counted.
func (d *Dialog) SetWindow(tokens uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frame.Window, d.factor = tokens, 1
}

// SetTools changes what the tools of every request are.
func (d *Dialog) SetTools(tools []tool.Spec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frame.Tools = tools
	d.around = uint64(len(d.frame.System)) + d.frame.toolBytes()
}

// Clear discards the messages.
func (d *Dialog) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(nil)
}

// Breakdown says where the tokens are.
func (d *Dialog) Breakdown() Breakdown {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.breakdown()
}

func (d *Dialog) breakdown() Breakdown {
	b := Breakdown{
		System:   d.tokens(uint64(len(d.frame.System))),
		Tools:    d.tokens(d.around - uint64(len(d.frame.System))),
		Messages: d.tokens(d.before(len(d.messages)).size),
		Budget:   d.frame.Window,
	}
	b.Total = b.System + b.Tools + b.Messages
	b.Available = b.Budget - min(b.Budget/4, maxReserve)
	return b
}

func (d *Dialog) tokens(bytes uint64) uint64 {
	return uint64(float64((bytes+BytesPerToken-1)/BytesPerToken) * d.factor)
}

// Fit returns the messages of the next request: all, or where they exceed what
// is available, the latest whole turns that do not. ErrTooLarge says that not
// even the last turn fits.
func (d *Dialog) Fit() (Part, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.breakdown()
	if b.Total <= b.Available {
		return d.from(0), nil
	}
	total := d.before(len(d.messages))
	first := sort.Search(len(d.messages), func(i int) bool {
		return b.System+b.Tools+d.tokens(total.minus(d.before(i)).size) <= b.Available
	})
	for i := max(first, 1); i < len(d.messages); i++ {
		if d.messages[i].Role == protocol.RoleUser {
			return d.from(i), nil
		}
	}
	return Part{}, fmt.Errorf("%w: about %d tokens, %d available", ErrTooLarge, b.Total, b.Available)
}

// Calibrate learns from what the provider counted for a request that carried
// the part.
func (d *Dialog) Calibrate(sent Part, u protocol.TurnUsage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counted := u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
	bytes := d.around + sent.size
	if counted == 0 || bytes == 0 {
		return
	}
	d.factor = min(max(float64(counted)*BytesPerToken/float64(bytes), 0.25), 4)
}

// Cut says how many of the first messages compaction may replace: those before
// the last KeepTurns turns. If there are too few, ok is false and why says so.
// The messages are shared and must not be changed.
func (d *Dialog) Cut() (old []protocol.Message, ok bool, why string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	kept := 0
	for i := len(d.messages) - 1; i > 0; i-- {
		if d.messages[i].Role != protocol.RoleUser {
			continue
		}
		if kept++; kept == KeepTurns {
			if i == 1 && IsSummary(d.messages[0]) {
				return nil, false, "nothing has been said since the last summary that is old enough to summarise"
			}
			return slices.Clip(d.messages[:i]), true, ""
		}
	}
	return nil, false, fmt.Sprintf("too little to summarise: %d messages, and the last %d turns are always kept", len(d.messages), KeepTurns)
}

// Would says how large the dialog would be with its first dropped messages
// replaced by summary.
func (d *Dialog) Would(dropped int, summary protocol.Message) (before, after uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.breakdown()
	left := d.from(dropped).size + size(summary).size
	return b.Total, b.System + b.Tools + d.tokens(left)
}

// Compact replaces the first dropped messages by summary.
func (d *Dialog) Compact(dropped int, summary protocol.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(slices.Concat([]protocol.Message{summary}, d.messages[dropped:]))
}
