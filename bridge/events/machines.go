package events

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

const (
	// openPatience is how long a stream waits for other machines before it begins.
	openPatience = 5 * time.Second
	// lookEvery is how often machines that do not answer are asked again, and is looked for agents that have moved.
	lookEvery = time.Second
)

// machinesStream is one stream of the agents of all machines: it merges the parts of all, its own, too. One goroutine for each part hands
// what comes to run, a batch at a time, and run owns every field but batches.
//
// Of each agent one part goes on. When that breaks off, or says that the agent has moved, the part of the machine that has claimed it goes on, which is
// asked anew for that, from the number on that the client has.
type machinesStream struct {
	s       *Streams
	r       Request
	asked   query
	out     *rpc.Stream
	agents  map[string]*agentPlace // at most maxNames
	parts   map[string]*machinePart
	again   map[string]bool // parts that are to be asked anew, by machine
	batches chan partBatch
	work    sync.WaitGroup // the goroutines of the parts
	buf     []byte         // what is to be sent

	text struct { // the position around the number of an agent
		agent, before, after string // agent is "" for none
	}
}

// agentPlace is the place in the events of one agent.
type agentPlace struct {
	seq  uint64 // of the last one that was sent
	from string // the machine whose part goes on with it; "" for none
	// next is another one that has begun with it after nextSeq, and waits until from has ended it; "" for none.
	next    string
	nextSeq uint64
	owner   string // the machine that had claimed it when look looked last, if no part goes on with it
}

// machinePart is the part of one machine.
type machinePart struct {
	machine string
	others  string // the machine's position for others; "" if none is known
	since   bool   // it was known when the stream began
	state   string // what the client knows of it; up if nothing was said
	attempt uint64 // what comes of earlier ones is void
	open    bool
	stop    context.CancelFunc // nil while it is not asked
}

// partBatch is some events of a part, or the error after its last ones.
type partBatch struct {
	machine string
	attempt uint64
	events  []byte
	err     error
	refused *rpc.Error      // of this machine's own part
	ack     chan<- struct{} // gets a value once the events were taken
}

// serveMachines streams the events of the agents of all machines.
func (s *Streams) serveMachines(ctx context.Context, r Request, q query, to rpc.Writer) (refused *rpc.Error, ended string) {
	c := &machinesStream{
		s: s, r: r, asked: q, out: rpc.NewStream(to, s.o.Heartbeat), agents: map[string]*agentPlace{}, parts: map[string]*machinePart{},
		again: map[string]bool{}, batches: make(chan partBatch),
	}
	if !q.fresh() {
		from, ok := parsePosition(q.position)
		if !ok {
			return new(badPosition(q)), ""
		}
		for id, seq := range from.agents {
			c.agents[id] = &agentPlace{seq: seq}
		}
		for machine, text := range from.machines {
			if machine == "" { // of this server, when it was alone
				machine = s.o.Elsewhere.Self()
			}
			c.parts[machine] = &machinePart{machine: machine, others: text, state: stateUp}
		}
	}
	running, stop := context.WithCancel(ctx)
	refused, err := c.run(running)
	stop()
	c.work.Wait()
	if refused != nil {
		return refused, ""
	}
	ended = endOf(ctx, err)
	end(c.out, ended, `"`+c.position()+`"`)
	return nil, ended
}

// States of a machine, as far as a stream tells of them.
const (
	stateUp   = "up"
	stateLost = "lost"
)

// run streams until it fails, and returns why. What it starts ends with ctx.
func (c *machinesStream) run(ctx context.Context) (refused *rpc.Error, err error) {
	if refused, err = c.begin(ctx); refused != nil || err != nil {
		return refused, err
	}
	beat, look := time.NewTicker(c.out.Heartbeat), time.NewTicker(lookEvery)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case b := <-c.batches:
			err = c.take(b)
		case <-look.C:
			c.look(ctx)
		case <-beat.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err == nil {
			c.askAgain(ctx)
			err = c.flush()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (c *machinesStream) flush() error {
	err := c.out.SendOrBeat(c.buf)
	if c.buf = c.buf[:0]; cap(c.buf) > maxKept {
		c.buf = nil
	}
	return err
}

// begin asks all machines, waits for what they say first, and tells the client where the stream begins.
func (c *machinesStream) begin(ctx context.Context) (refused *rpc.Error, err error) {
	others := c.s.o.Elsewhere.Others()
	self := c.s.o.Elsewhere.Self()
	c.part(self, stateUp).since = true
	asked := []string{self}
	for _, m := range others {
		p := c.part(m.Name, stateUp)
		p.since = true
		switch m.State {
		case stateUp:
			asked = append(asked, m.Name)
		case stateLost: // the client is told of it
		default:
			p.state = m.State
		}
	}
	for _, machine := range asked {
		c.ask(ctx, c.parts[machine])
	}
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	var first []partBatch // each part hands over one until that is taken
	for late := false; len(first) < len(asked) && !late; {
		select {
		case b := <-c.batches:
			first = append(first, b)
		case <-patience.C:
			late = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var gap bool
	for i, b := range first {
		if b.refused != nil {
			return b.refused, nil
		}
		if e, ok := errors.AsType[*rpc.RemoteError](b.err); ok && e.Answer.Status == http.StatusBadRequest { // what this machine has found good
			return new(manyAgents()), nil
		}
		if b.err == nil {
			block, rest := cutBlock(b.events)
			missed, err := c.opened(c.parts[b.machine], block)
			if errors.Is(err, errTooManyAgents) {
				return new(manyAgents()), nil
			}
			gap, first[i].events, first[i].err = gap || missed, rest, err
		}
	}
	open := protocol.StreamOpen{Gap: gap}
	c.buf = rpc.AppendEvent(c.buf, c.position(), open.Name(), protocol.EncodeEvent(open))
	for _, b := range first {
		if err := c.take(b); err != nil {
			return nil, err
		}
	}
	for _, m := range others {
		if p := c.parts[m.Name]; m.State == stateLost || m.State == stateUp && !p.open {
			c.tell(p, stateLost, false)
		}
	}
	c.askAgain(ctx)
	return nil, c.flush()
}

// part is that of a machine, of which the client knows the state if it is new.
func (c *machinesStream) part(machine, state string) *machinePart {
	p := c.parts[machine]
	if p == nil {
		p = &machinePart{machine: machine, state: state}
		c.parts[machine] = p
	}
	return p
}

// tell tells the client of the state of a machine, if that is another one.
func (c *machinesStream) tell(p *machinePart, state string, gap bool) {
	if p.state == state && !gap {
		return
	}
	p.state = state
	e := protocol.NodeState{Node: p.machine, State: state, Gap: gap}
	c.buf = rpc.AppendEvent(c.buf, c.position(), e.Name(), protocol.EncodeEvent(e))
}

// look asks the machines that are not followed, and tells of those that are not there. Agents that no part goes on with are those of the machines
// that have claimed them.
func (c *machinesStream) look(ctx context.Context) {
	for _, m := range c.s.o.Elsewhere.Others() {
		switch p := c.part(m.Name, m.State); {
		case p.stop != nil:
		case m.State == stateUp:
			c.ask(ctx, p)
		default:
			c.tell(p, m.State, false)
		}
	}
	if own := c.parts[c.s.o.Elsewhere.Self()]; own.stop == nil {
		c.ask(ctx, own)
	}
	for id, place := range c.agents {
		p := c.owner(id)
		if place.from != "" || p == nil || !p.open {
			place.owner = ""
			continue
		}
		if place.owner == p.machine { // for a while: it has fetched what was saved of the agent
			c.again[p.machine] = true
		}
		place.owner = p.machine
	}
}

// owner is the part of the machine that has claimed an agent; nil for none.
func (c *machinesStream) owner(id string) *machinePart {
	machine, known := c.s.o.Elsewhere.Owner(id)
	switch {
	case !known:
		return nil
	case machine == "":
		machine = c.s.o.Elsewhere.Self()
	}
	return c.parts[machine]
}

// askAgain asks the parts anew of which that was found necessary.
func (c *machinesStream) askAgain(ctx context.Context) {
	if len(c.again) == 0 {
		return
	}
	again := c.again
	c.again = map[string]bool{} // one may be added
	for machine := range again {
		c.ask(ctx, c.parts[machine])
	}
}

// ask begins a part, or begins it anew: from where the client is in it.
func (c *machinesStream) ask(ctx context.Context, p *machinePart) {
	c.leave(p)
	asked := c.asked
	asked.position, asked.source = c.positionIn(p), "position"
	ctx, p.stop = context.WithCancel(ctx)
	p.attempt++
	from := partReader{c: c, machine: p.machine, attempt: p.attempt, ack: make(chan struct{}, 1)}
	if p.machine == c.s.o.Elsewhere.Self() {
		c.work.Go(func() { from.readOwn(ctx, asked) })
	} else {
		c.work.Go(func() { from.read(ctx, asked.position) })
	}
}

// leave ends a part. What other machines have begun of its agents goes on there.
func (c *machinesStream) leave(p *machinePart) {
	if p.stop != nil {
		p.stop()
	}
	p.stop, p.open = nil, false
	for _, place := range c.agents {
		if place.next == p.machine {
			place.next = ""
		}
		if place.from == p.machine {
			place.from = ""
			c.goOn(place)
		}
	}
}

// goOn has the machine go on with an agent that has begun with it while another one had it.
func (c *machinesStream) goOn(place *agentPlace) {
	if place.next != "" {
		c.again[place.next] = true
	}
}

// positionIn is where the client is in a part: it names the agents that no other part goes on with, unless they are another machine's.
func (c *machinesStream) positionIn(p *machinePart) string {
	at := cursor{}
	for id, place := range c.agents {
		if owner := c.owner(id); place.from == "" && (owner == nil || owner == p || place.next == p.machine) {
			at[id] = place.seq
		}
	}
	switch text := at.text(c.s.code); {
	case p.others != "" && text != "":
		return others + ":" + p.others + "," + text
	case p.others != "":
		return others + ":" + p.others
	case text != "":
		return text
	case p.since && c.asked.fresh():
		return c.asked.position
	default: // the machine came since the stream began, or since the client got its position
		return fromFirst
	}
}

// take takes a batch of a part.
func (c *machinesStream) take(b partBatch) error {
	p := c.parts[b.machine]
	if b.attempt != p.attempt || p.stop == nil {
		return nil
	}
	if b.err != nil {
		if e, ok := errors.AsType[*rpc.RemoteError](b.err); ok && e.Answer.Status == http.StatusBadRequest || b.refused != nil {
			return errTooManyAgents
		}
		broke := p.open // it may go on at once
		if c.leave(p); !broke {
			c.tell(p, stateLost, false)
		}
		return nil
	}
	for len(b.events) > 0 && p.stop != nil {
		var block []byte
		block, b.events = cutBlock(b.events)
		switch err := c.event(p, block); {
		case errors.Is(err, errBadPart):
			c.s.o.Log.Warn("follow the events of another machine's agents; it is tried again", zap.String("machine", p.machine), zap.Error(err))
			c.leave(p)
			c.tell(p, stateLost, false)
		case err != nil:
			return err
		}
	}
	b.ack <- struct{}{}
	return nil
}
