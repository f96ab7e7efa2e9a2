// Package dialog holds the messages of a conversation and knows how large they
// are.
//
//	d := dialog.New(restored, dialog.Frame{System: text, Tools: specs, Window: 128_000})
//	d.Add(m)
//	messages, err := d.Fit()     // what the next request may carry
//	d.Calibrate(messages, usage) // what the provider counted for it
//	cut, ok, why := d.Cut()      // where compaction may divide it
//
// Sizes in tokens are estimates: a quarter of the bytes, corrected by what the
// provider counted last. A Dialog is safe for concurrent use and starts no
// goroutine. It refuses to part a tool call from its result. See SPEC.md §4.
package dialog

import (
	"errors"
	"fmt"
	"slices"
	"sync"

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
	mu       sync.RWMutex // guards all below
	messages []protocol.Message
	sizes    []uint64 // bytes of each message
	total    uint64   // sum of sizes
	frame    Frame
	factor   float64 // tokens counted for each one estimated
}

// New returns a Dialog of the messages, which it takes over.
func New(messages []protocol.Message, f Frame) *Dialog {
	d := &Dialog{frame: f, factor: 1}
	d.replace(messages)
	return d
}

func (d *Dialog) replace(messages []protocol.Message) {
	d.messages, d.sizes, d.total = messages, make([]uint64, len(messages)), 0
	for i, m := range messages {
		d.sizes[i] = size(m)
		d.total += d.sizes[i]
	}
}

func size(m protocol.Message) uint64 {
	n := messageOverhead + len(m.Content) + len(m.Thinking)
	for _, c := range m.ToolCalls {
		n += messageOverhead + len(c.Name) + len(c.Input)
	}
	return uint64(n)
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
	for _, m := range messages {
		d.messages = append(d.messages, m)
		d.sizes = append(d.sizes, size(m))
		d.total += size(m)
	}
}

// Len is the number of messages.
func (d *Dialog) Len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.messages)
}

// Messages returns a copy of all messages. What they point to is shared and
// must not be changed.
func (d *Dialog) Messages() []protocol.Message {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clone(d.messages)
}

// SetWindow changes the size of the context window, in tokens, and forgets
// what another model counted.
func (d *Dialog) SetWindow(tokens uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frame.Window, d.factor = tokens, 1
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
		Tools:    d.tokens(d.frame.toolBytes()),
		Messages: d.tokens(d.total),
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
func (d *Dialog) Fit() ([]protocol.Message, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := d.breakdown()
	if b.Total <= b.Available {
		return slices.Clone(d.messages), nil
	}
	left := d.total
	for i, m := range d.messages {
		if i > 0 && m.Role == protocol.RoleUser && b.System+b.Tools+d.tokens(left) <= b.Available {
			return slices.Clone(d.messages[i:]), nil
		}
		left -= d.sizes[i]
	}
	return nil, fmt.Errorf("%w: about %d tokens, %d available", ErrTooLarge, b.Total, b.Available)
}

// Calibrate learns from what the provider counted for a request that carried
// these messages.
func (d *Dialog) Calibrate(sent []protocol.Message, u protocol.TurnUsage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counted := u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
	bytes := uint64(len(d.frame.System)) + d.frame.toolBytes()
	for _, m := range sent {
		bytes += size(m)
	}
	if counted == 0 || bytes == 0 {
		return
	}
	d.factor = min(max(float64(counted)*BytesPerToken/float64(bytes), 0.25), 4)
}

// Cut says how many of the first messages compaction may replace: those before
// the last KeepTurns turns. If there are too few, ok is false and why says so.
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
			return slices.Clone(d.messages[:i]), true, ""
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
	left := d.total + size(summary)
	for _, n := range d.sizes[:dropped] {
		left -= n
	}
	return b.Total, b.System + b.Tools + d.tokens(left)
}

// Compact replaces the first dropped messages by summary.
func (d *Dialog) Compact(dropped int, summary protocol.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(slices.Concat([]protocol.Message{summary}, d.messages[dropped:]))
}
