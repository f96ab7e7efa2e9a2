package rpc

import (
	"fmt"
	"runtime"
	"sync"

	"nexus.internal/bridge/api"
)

// Bounds of what the requests of keys that are not full hold, in bytes (SPEC §7).
const (
	DefaultBudget    = 256 << 20 // all these keys
	DefaultKeyBudget = 64 << 20  // one of them
	// perCall is what a call counts from its begin: its goroutine, and an answer up to so many bytes.
	perCall = 32 << 10
)

// Budget bounds the memory and the processor time that the requests of keys that are not full
// take: the bytes of their bodies, calls and answers until an answer is written, and how many of
// these are decoded or written as JSON at once. It is safe for concurrent use.
type Budget struct {
	most, mostOfKey int           // bytes
	working         chan struct{} // holds one for each Share.Work under way

	mu    sync.Mutex // guards what follows
	held  int        // bytes, of all keys
	keyed map[string]int
}

// NewBudget returns a Budget of bytes for all keys, and for one of them. Half of the processors
// work for these keys.
func NewBudget(most, mostOfKey int) *Budget {
	return &Budget{
		most: most, mostOfKey: mostOfKey, keyed: map[string]int{},
		working: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// Share is what one request holds of a Budget. A nil Share, that of a full key, holds
// nothing and refuses nothing. It is safe for concurrent use.
type Share struct {
	b    *Budget
	key  string
	held int // bytes; guarded by b.mu
}

// Share returns a share of the key with that id, which holds nothing yet. Close must follow.
func (b *Budget) Share(key string) *Share { return &Share{b: b, key: key} }

// Add holds n bytes more, and reports whether they are within the bounds; else it holds none
// of them. n may be negative.
func (s *Share) Add(n int) bool {
	if s == nil {
		return true
	}
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && (b.held+n > b.most || b.keyed[s.key]+n > b.mostOfKey) {
		return false
	}
	s.held += n
	b.held += n
	if b.keyed[s.key] += n; b.keyed[s.key] == 0 {
		delete(b.keyed, s.key)
	}
	return true
}

// AddCalls holds what n calls take beside their answers.
func (s *Share) AddCalls(n int) bool { return s.Add(n * perCall) }

// Close gives everything back.
func (s *Share) Close() {
	if s != nil {
		s.Add(-s.held)
	}
}

// Work runs f, which takes processor time and waits for nothing, when one of the places of these
// keys is free.
func (s *Share) Work(f func()) {
	if s != nil {
		s.b.working <- struct{}{}
		defer func() { <-s.b.working }()
	}
	f()
}

// addResult holds a result of so many bytes, for which perCall bytes are held already. The error
// is that of a call of m whose answer does not fit.
func (s *Share) addResult(m api.Method, size int) error {
	if size <= perCall || s.Add(size-perCall) {
		return nil
	}
	if m.Effect == api.Reads {
		return errBudget
	}
	return &api.Error{
		Kind: api.KindResponseTooLarge, Details: fmt.Sprintf("the call was carried out; its answer of %d bytes does not fit beside the unread answers of keys that are not full", size),
		Suggestions: []string{"Read the answers of earlier requests. A send that is sent again with its request_id is answered with its text."},
	}
}

// errBudget refuses what would exceed a Budget.
var errBudget = &api.Error{
	Kind: api.KindRateLimited, Details: "the requests of keys that are not full, and their unread answers, have as many bytes as they may have",
	Suggestions: []string{"Read the answers of earlier requests, then ask again, in smaller batches."},
}

// OverBudget is the answer to a request that would exceed a Budget: nothing was carried out.
var OverBudget = ToError(errBudget)
