package scripted

import (
	"sync"

	"nexus.internal/protocol"
)

// reducer computes a value from the messages of a conversation, one message at a time.
// It remembers how far it got, so that a conversation which grew costs only
// what was added; of any other it begins anew. It keeps the last conversation
// it saw in memory and is safe for concurrent use.
type reducer[T any] struct {
	step func(value T, m protocol.Message) T

	mu    sync.Mutex        // guards all below
	start *protocol.Message // where the conversation lies
	seen  int               // messages in value
	value T
}

// reduce folds the messages, which nobody may change from then on. Only the latest
// conversation is remembered: two that take turns are each folded anew.
func (f *reducer[T]) reduce(messages []protocol.Message) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(messages) == 0 || f.start != &messages[0] || len(messages) < f.seen {
		var zero T
		f.value, f.seen, f.start = zero, 0, nil
	}
	for _, m := range messages[f.seen:] {
		f.value = f.step(f.value, m)
	}
	if f.seen = len(messages); f.seen > 0 {
		f.start = &messages[0]
	}
	return f.value
}
