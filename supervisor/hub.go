package supervisor

import (
	"context"
	"io"
	"math"
	"strconv"
	"sync"
)

// Bounds of an agent's events in memory, in bytes (SPEC §7).
const (
	hubKeep  = 256 << 10 // always kept, once there were so many
	hubLimit = 4 << 20   // kept for a subscriber that has yet to read them
	// hubBatch is how many events one call of Next returns at most.
	hubBatch = 1024
	// eventCost is what an event counts beyond its data.
	eventCost = 64
)

// Event is one numbered event of an agent: a frame of its child as it was
// written, or one of ours.
type Event struct {
	// Seq counts from 1 for each agent, over all its incarnations. A gap event
	// bears the number of the last event that it stands for.
	Seq uint64
	// Type is the "type" member of Data.
	Type string
	// Data is a JSON object without a newline. It is shared and must not be
	// changed.
	Data []byte
}

// hub numbers the events of one agent, keeps the latest and hands them to
// subscribers. A subscriber that falls behind by more than hubLimit loses its
// subscription (ErrSlow); the agent never waits for one.
type hub struct {
	mu     sync.Mutex // guards all below
	events []Event    // the last event has the number last
	last   uint64
	size   int // of events, in bytes as the bounds count
	subs   map[*Subscription]struct{}
	closed bool
	slow   func() // called for each subscription that was lost
}

// publish gives data the next number. The hub keeps data.
func (h *hub) publish(typ string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.events = append(h.events, Event{Seq: h.last, Type: typ, Data: data})
	h.size += len(data) + eventCost
	h.trim()
	for s := range h.subs {
		s.wake()
	}
}

// trim lets go of the oldest events until the bounds hold.
func (h *hub) trim() {
	n := 0
	for h.size > hubKeep && n < len(h.events)-1 {
		oldest := h.events[n]
		if h.wanted(oldest.Seq) {
			break
		}
		h.size -= len(oldest.Data) + eventCost
		h.events[n] = Event{}
		n++
	}
	h.events = h.events[n:]
}

// wanted reports whether a subscriber has yet to read the event and may still
// do so. Beyond hubLimit it ends the subscriptions that do.
func (h *hub) wanted(seq uint64) bool {
	wanted := false
	for s := range h.subs {
		if s.read >= seq {
			continue
		}
		if h.size <= hubLimit {
			return true
		}
		s.err = ErrSlow
		delete(h.subs, s)
		h.slow()
		s.wake()
	}
	return wanted
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		s.wake()
	}
}

func (h *hub) subscribe(after uint64) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Subscription{hub: h, read: after, notify: make(chan struct{}, 1)}
	if after == math.MaxUint64 {
		s.read = h.last
	}
	begun := s.read > h.last // numbers began anew since: nothing of these was seen
	if begun {
		s.read = 0
	}
	if first := h.first(); s.read+1 < first {
		if s.read != 0 || begun {
			s.gap = gapEvent(s.read+1, first-1)
		}
		s.read = first - 1
	}
	if h.subs == nil {
		h.subs = map[*Subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s
}

// first is the number of the oldest event that is kept, or of the next one.
func (h *hub) first() uint64 { return h.last - uint64(len(h.events)) + 1 }

func gapEvent(from, to uint64) *Event {
	data := strconv.AppendUint([]byte(`{"type":"gap","from":`), from, 10)
	data = strconv.AppendUint(append(data, `,"to":`...), to, 10)
	return &Event{Seq: to, Type: "gap", Data: append(data, '}')}
}

// Subscription is a place in the events of one agent. Next is for one
// goroutine at a time; Close may be called by any.
type Subscription struct {
	hub    *hub
	notify chan struct{} // a value means: look again

	// The rest is guarded by hub.mu.
	read    uint64 // the number of the last event handed out
	waiting bool
	gap     *Event // to be handed out first
	err     error  // why it ended
	batch   []Event
}

// Next returns what came since the last call, in order, waiting for at least
// one event. The slice is valid until the next call; the data in it is valid
// for good. Errors: ErrSlow if the subscriber fell behind by more than 4 MiB,
// io.EOF once the agent is removed and all was read or the subscription is
// closed, and that of ctx.
func (s *Subscription) Next(ctx context.Context) ([]Event, error) {
	for {
		if batch, err := s.take(); batch != nil || err != nil {
			return batch, err
		}
		select {
		case <-s.notify:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Subscription) take() ([]Event, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.batch = s.batch[:0]
	if s.gap != nil {
		s.batch = append(s.batch, *s.gap)
		s.gap = nil
	}
	if s.read < h.last {
		fresh := h.events[s.read+1-h.first():]
		fresh = fresh[:min(len(fresh), hubBatch)]
		s.batch = append(s.batch, fresh...)
		s.read += uint64(len(fresh))
		h.trim() // nobody else may have needed them
	}
	switch {
	case len(s.batch) > 0:
		return s.batch, nil
	case h.closed:
		return nil, io.EOF
	}
	s.waiting = true
	return nil, nil
}

// wake tells a waiting Next to look again. The hub's mutex is held.
func (s *Subscription) wake() {
	if !s.waiting {
		return
	}
	s.waiting = false
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// Close gives the subscription up. It is idempotent.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.hub.subs, s)
	s.hub.trim()
	if s.err == nil {
		s.err = io.EOF
	}
	s.wake()
}
