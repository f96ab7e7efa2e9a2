package events

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/url"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// A part is the stream of one machine's agents that another machine merges with those of others. It is told as a stream of all agents, but for its
// positions and for two events more:
//
//	id: *:HEX,worker:7                      of open: the agents of this machine that it goes on with
//	id: worker:8                            of an event: what has changed in the position
//	id: worker:8,*:HEX
//	event: begun, data: {"agent_id","after"} an agent begins after that number
//	event: moved, data: {"agent_id"}         another machine has the agent
//
// The position for others is that of the registrations that the events before it are of.

// fromFirst is the position of a part before the first agent of its machine.
const fromFirst = "first"

const (
	partBegun = "begun"
	partMoved = "moved"
)

// partEvent is the data of the two events.
type partEvent struct {
	AgentID string `json:"agent_id"`
	After   uint64 `json:"after,omitzero"`
}

func appendPartEvent(id, name string, e partEvent) []byte {
	data, err := json.Marshal(e)
	if err != nil {
		panic("events: a name and a number: " + err.Error())
	}
	return rpc.AppendEvent(nil, id, name, data)
}

// has reports whether this machine goes on with an agent: with one that was here since it began, and that is not known to be another machine's,
// or with one that is saved here.
func (s *Streams) has(agent string, registered bool) bool {
	machine, known := s.o.Elsewhere.Owner(agent)
	return machine == "" && (known || registered)
}

// partAround is around for a part.
func (c *allEvents) partAround(agent string) (before, after string) {
	if c.told != c.at[others] {
		after = "," + c.othersText(c.at[others])
	}
	return agent + ":", after
}

func (c *allEvents) othersText(number uint64) string {
	return cursor{others: number}.text(c.s.code)
}

// tellBegun has the machine that merges know that the events of a registration above a number come next.
func (c *allEvents) tellBegun(reg supervisor.Registration, after uint64) error {
	if !c.part {
		return nil
	}
	c.told = reg.Number
	return c.out.Send(appendPartEvent(c.othersText(reg.Number), partBegun, partEvent{reg.ID, after}))
}

// tellMoved has the machine that merges know that another machine has an agent.
func (c *allEvents) tellMoved(agent string) error {
	delete(c.at, agent)
	return c.out.Send(appendPartEvent("", partMoved, partEvent{AgentID: agent}))
}

// partReader hands the events of one part over. It belongs to one goroutine.
type partReader struct {
	c       *machinesStream
	machine string
	attempt uint64
	ack     chan struct{} // with room for one, so that sending it never waits
}

// read asks another machine.
func (p partReader) read(ctx context.Context, position string) {
	query := url.Values(maps.Clone(map[string][]string(p.c.r.Query)))
	query.Del("after")
	if position != "" {
		query.Set("after", position)
	}
	from, err := p.c.s.o.Elsewhere.Events(ctx, p.machine, Request{By: p.c.r.By, RequestID: p.c.r.RequestID, Query: query})
	if err != nil {
		p.over(ctx, err, nil)
		return
	}
	defer from.Close()
	for {
		events, err := from.Next()
		if err != nil {
			p.over(ctx, err, nil)
			return
		}
		if p.hand(ctx, events) != nil {
			return
		}
	}
}

// readOwn streams this machine's.
func (p partReader) readOwn(ctx context.Context, q query) {
	refused, _ := p.c.s.serveOwn(ctx, q, true, ownPart{ctx, p})
	p.over(ctx, io.EOF, refused)
}

// hand hands events over, and returns once they were taken.
func (p partReader) hand(ctx context.Context, events []byte) error {
	select {
	case p.c.batches <- partBatch{machine: p.machine, attempt: p.attempt, events: events, ack: p.ack}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-p.ack:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// over hands over that there are no more.
func (p partReader) over(ctx context.Context, err error, refused *rpc.Error) {
	select {
	case p.c.batches <- partBatch{machine: p.machine, attempt: p.attempt, err: err, refused: refused}:
	case <-ctx.Done():
	}
}

// ownPart is this machine's part as it is written.
type ownPart struct {
	ctx context.Context //nolint:containedctx // of the part's goroutine
	to  partReader
}

// Send implements [rpc.Writer].
func (p ownPart) Send(events []byte) error {
	if p.to.hand(p.ctx, events) != nil {
		return rpc.ErrSlowClient
	}
	return nil
}

var blockEnd = []byte("\n\n")

// cutBlock cuts the first event, with its end, from the others.
func cutBlock(events []byte) (block, rest []byte) {
	at := bytes.Index(events, blockEnd)
	if at < 0 {
		return events, nil
	}
	return events[:at+len(blockEnd)], events[at+len(blockEnd):]
}

// readBlock reads an event as [rpc.AppendEvent] writes it; rest is what follows the id. The name of a comment is "".
func readBlock(block []byte) (id, name string, rest []byte) {
	rest = block
	if after, ok := bytes.CutPrefix(block, []byte("id: ")); ok {
		line, others, _ := bytes.Cut(after, []byte("\n"))
		id, rest = string(line), others
	}
	if after, ok := bytes.CutPrefix(rest, []byte("event: ")); ok {
		line, _, _ := bytes.Cut(after, []byte("\n"))
		name = string(line)
	}
	return id, name, rest
}

// dataOf is the data of an event.
func dataOf(rest []byte) []byte {
	_, data, _ := bytes.Cut(rest, []byte("\ndata: "))
	return bytes.TrimSuffix(data, blockEnd)
}

// agentOf is the agent of an event as appendAgentEvent writes it.
func agentOf(data []byte) (agent string, ok bool) {
	after, ok := bytes.CutPrefix(data, []byte(`{"agent_id":"`))
	name, _, closed := bytes.Cut(after, []byte(`"`))
	return string(name), ok && closed
}
