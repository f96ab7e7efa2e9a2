package supervisor

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// Bounds of an agent's events in memory, in bytes (SPEC §7).
const (
	hubKeep  = 256 << 10 // always kept, once there were so many
	hubLimit = 4 << 20   // kept for a subscriber that has yet to read them
	// batchSize is how much one call of Next returns at most, but for a single event:
	// a subscriber that is stuck keeps that to itself.
	batchSize = 64 << 10
	// eventCost is what an event counts beyond its data.
	eventCost = 64
)

// Event is one numbered event of an agent: a frame of its child as it was
// written, or one of ours.
type Event struct {
	// Seq counts from 1 for each agent, over all its incarnations. A gap event
	// bears the number of the last event that it stands for. 0 for a piece of a tool's output
	// ([Subscription.FollowOutput]), which is not kept.
	Seq uint64
	// Type is the "type" member of Data.
	Type string
	// Data is a JSON object without a newline. It is shared and must not be
	// changed.
	Data []byte
}

// hub numbers the events of one agent, keeps the latest and hands them to
// subscribers; earlier ones are read from the log. A subscriber that falls behind
// by more than hubLimit loses its subscription (ErrSlow); the agent never waits
// for one.
type hub struct {
	agent  *Agent // whose events they are
	log    Records
	slow   *atomic.Uint64 // counts the subscriptions that were lost
	errors *zap.Logger    // gets a line where the log cannot be read

	mu     sync.Mutex // guards all below
	events []Event    // the last event has the number last
	last   uint64
	size   int // of events, in bytes as the bounds count
	subs   map[*Subscription]struct{}
	output map[*Subscription]*liveOutput // of the subscriptions that want it
	closed bool
	moved  bool // it is closed as another machine has the agent, or is to have it
}

// publish gives data the next number. The hub keeps data.
func (h *hub) publish(typ string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	e := Event{Seq: h.last, Type: typ, Data: data}
	h.events = append(h.events, e)
	h.log.Append(e)
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
		h.slow.Add(1)
		s.wake()
	}
	return wanted
}

func (h *hub) close(moved bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.moved = true, moved
	for s := range h.subs {
		s.wake()
	}
}

func (h *hub) hasMoved() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved
}

func (h *hub) number() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// subscribe begins after the number that from makes of the last one. begun says
// that all is wanted from the first event on, so that a gap stands for what is not kept.
func (h *hub) subscribe(begun bool, from func(last uint64) uint64) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Subscription{hub: h, read: from(h.last), begun: begun, notify: make(chan struct{}, 1)}
	if s.read > h.last { // numbers began anew since: nothing of these was seen
		s.read, s.begun = 0, true
	}
	if s.read+1 >= h.first() {
		h.attach(s)
	}
	return s
}

// attach lets a subscription have what is kept for it. mu is held.
func (h *hub) attach(s *Subscription) {
	if h.subs == nil {
		h.subs = map[*Subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
}

// first is the number of the oldest event that is kept, or of the next one.
func (h *hub) first() uint64 { return h.last - uint64(len(h.events)) + 1 }

// GapEvent stands for the events of an agent from one number to another, which are
// not kept any more.
func GapEvent(from, to uint64) Event {
	e := protocol.Gap{From: from, To: to}
	return Event{Seq: to, Type: e.Name(), Data: protocol.EncodeEvent(e)}
}

// Subscription is a place in the events of one agent. Next is for one
// goroutine at a time; Close may be called by any.
type Subscription struct {
	hub    *hub
	notify chan struct{} // a value means: look again

	// The rest is guarded by hub.mu. One that reads from the log is not in
	// hub.subs: nothing is kept for it.
	read    uint64 // the number of the last event handed out
	begun   bool   // all of the agent is new to it, from the first event on
	waiting bool
	err     error // why it ended
	batch   []Event
}

// Next returns what came since the last call, in order, waiting for at least
// one event. The slice is valid until the next call; the data in it is valid
// for good. Errors: ErrSlow if the subscriber fell behind by more than 4 MiB,
// io.EOF once the agent is removed and all was read or the subscription is
// closed, and that of ctx.
func (s *Subscription) Next(ctx context.Context) ([]Event, error) {
	for {
		batch, first, err := s.take()
		if first > 0 {
			batch = s.readLog(first)
			if len(batch) == 0 {
				continue
			}
		}
		if batch != nil || err != nil {
			return batch, err
		}
		select {
		case <-s.notify:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes a batch of what the hub keeps; nil if there is nothing new. If the next event
// is not kept any more, first is the oldest one that is, else 0.
func (s *Subscription) take() (batch []Event, first uint64, err error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch first := h.first(); {
	case s.err != nil:
		return nil, 0, s.err
	case s.read+1 < first:
		return nil, first, nil
	}
	h.attach(s)
	s.batch = s.batch[:0]
	if s.read < h.last {
		size := 0
		for _, e := range h.events[s.read+1-h.first():] {
			s.batch = h.output[s].take(s.batch, e.Seq-1)
			if size += len(e.Data) + eventCost; size > batchSize && len(s.batch) > 0 {
				break
			}
			s.batch = append(s.batch, e)
			s.read = e.Seq
		}
		h.trim() // nobody else may have needed them
	}
	s.batch = h.output[s].take(s.batch, s.read)
	switch {
	case len(s.batch) > 0:
		return s.batch, 0, nil
	case h.closed:
		return nil, 0, io.EOF
	}
	s.waiting = true
	return nil, 0, nil
}

// readLog reads a batch that the hub does not keep any more from the log; first
// is the number that it keeps. All numbers below first were handed to the log, so
// those that it lacks are gone.
func (s *Subscription) readLog(first uint64) []Event {
	h, read := s.hub, s.read // only this goroutine changes it
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.read = read
		h.output[s].skip(read)
	}()
	s.batch = s.batch[:0]
	skip := func(to uint64) {
		if read < to && (read > 0 || s.begun) {
			s.batch = append(s.batch, GapEvent(read+1, to))
		}
		read = max(read, to)
	}
	size := 0
	for e, err := range h.log.Read(read) {
		if err != nil {
			h.errors.Warn("events not read", zap.Error(err))
			break
		}
		skip(e.Seq - 1)
		s.batch = append(s.batch, e)
		read = e.Seq
		if size += len(e.Data) + eventCost; size >= batchSize {
			return s.batch
		}
	}
	skip(first - 1)
	return s.batch
}

// After is the number of the last event that Next has returned, or of the one
// that the subscription began after: a later one goes on there.
func (s *Subscription) After() uint64 {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.read
}

// Moved reports whether the agent has ended here as another machine has it, or was to have it.
func (s *Subscription) Moved() bool { return s.hub.hasMoved() }

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
	if s.close() {
		s.hub.agent.tellOutputWanted()
	}
}

// close reports whether it was the last one that wanted the output of tools.
func (s *Subscription) close() (last bool) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	if h.output[s] != nil {
		delete(h.output, s)
		last = len(h.output) == 0
	}
	h.trim()
	if s.err == nil {
		s.err = io.EOF
	}
	s.wake()
	return last
}
