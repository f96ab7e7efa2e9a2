package events

import (
	"context"
	"io"
	"slices"

	"go.uber.org/zap"

	"nexus.internal/supervisor"
)

// storedBatch bounds the events from the disk that are handed over at once, in bytes; one
// event may be larger.
const storedBatch = 64 << 10

// storedEvents is the source for an agent that does not run any more: the events that are on
// disk, up to its last one, with a gap for each that is not kept.
type storedEvents struct {
	s     *Streams
	id    string
	reg   uint64 // the number of its registration; 0 for one in an earlier server, whose last event is unknown
	read  uint64 // the number of the last event handed out
	last  uint64 // the number of its last event
	moved bool   // its registration is over as another machine has the agent
}

// untilRegistered bounds what is read of an agent in an earlier server by what this server knows
// of one of that name, which may have begun meanwhile: its events are for whoever follows that.
func (p *storedEvents) untilRegistered(batch []supervisor.Event, before uint64) []supervisor.Event {
	registered, _ := p.s.o.Supervisor.Registrations(0)
	at := slices.IndexFunc(registered, func(r supervisor.Registration) bool { return r.ID == p.id })
	if at < 0 {
		return batch
	}
	p.last = registered[at].Since
	if over := slices.IndexFunc(batch, func(e supervisor.Event) bool { return e.Seq > p.last }); over >= 0 {
		batch = batch[:over]
	}
	p.read = before
	if len(batch) > 0 {
		p.read = batch[len(batch)-1].Seq
	}
	return batch
}

// Next returns the next events. The error is io.EOF after the last one, and that of ctx.
func (p *storedEvents) Next(ctx context.Context) (batch []supervisor.Event, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	size, before, more := 0, p.read, false
	for e, err := range p.s.o.History.Events(p.id, p.read) {
		if err != nil {
			p.s.o.Log.Warn("events of an agent that is gone are not read", zap.String("agent", p.id), zap.Error(err))
			break
		}
		if e.Seq > p.last {
			break
		}
		if e.Seq > p.read+1 {
			batch = append(batch, supervisor.GapEvent(p.read+1, e.Seq-1))
		}
		batch = append(batch, e)
		p.read = e.Seq
		if size += len(e.Data); size >= storedBatch {
			more = true
			break
		}
	}
	if p.reg == 0 { // after it was read: what a registration brought is not on disk before it is known
		batch = p.untilRegistered(batch, before)
	}
	if p.reg != 0 && p.s.o.Supervisor.Gone(p.reg) { // the events that were read may be of another agent
		batch, p.read, more = nil, before, false
	}
	if p.reg != 0 && !more && p.read < p.last {
		batch = append(batch, supervisor.GapEvent(p.read+1, p.last))
		p.read = p.last
	}
	if len(batch) == 0 {
		return nil, io.EOF
	}
	return batch, nil
}

// Moved implements source.
func (p *storedEvents) Moved() bool { return p.moved }

// Close does nothing: nothing is open between two batches.
func (p *storedEvents) Close() {}
