package events

import (
	"context"
	"io"

	"go.uber.org/zap"

	"nexus.internal/supervisor"
)

// storedBatch is how much of what is on disk is handed over at once, in bytes, but
// for a single event.
const storedBatch = 64 << 10

// storedEvents is what an agent did that does not run any more, from the disk: up to its
// last event, with a gap for what is not kept.
type storedEvents struct {
	s    *Streams
	id   string
	life uint64 // the number of its life; 0 for one of an earlier server, whose last event nobody knows
	read uint64 // the number of the last event handed out
	last uint64 // and of the last one there was
}

// Next returns what comes next; io.EOF once that was all.
func (p *storedEvents) Next(ctx context.Context) (batch []supervisor.Event, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	size, before, more := 0, p.read, false
	for e, err := range p.s.o.History.After(p.id, p.read) {
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
	if p.life != 0 && p.s.o.Supervisor.Gone(p.life) { // and what was read may be another agent's
		batch, p.read, more = nil, before, false
	}
	if p.life != 0 && !more && p.read < p.last {
		batch = append(batch, supervisor.GapEvent(p.read+1, p.last))
		p.read = p.last
	}
	if len(batch) == 0 {
		return nil, io.EOF
	}
	return batch, nil
}

// Close does nothing: nothing is open between two batches.
func (p *storedEvents) Close() {}
