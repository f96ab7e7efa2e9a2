package events

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// errTooManyAgents says that there are more agents than one stream can follow.
var errTooManyAgents = errors.New("more agents than one stream can follow")

// serveAll streams the events of all agents, or of those that are named, as they come: of all machines, or of this one alone if another
// machine merges them. Of an agent that is created meanwhile it streams every event. It starts no agent.
func (s *Streams) serveAll(ctx context.Context, r Request, q query, to rpc.Writer) (refused *rpc.Error, ended string) {
	agent := "" // all, or several
	if len(q.agents) == 1 {
		agent = slices.Collect(maps.Keys(q.agents))[0]
	}
	if err := r.By.MayReach(agent); err != nil {
		return new(rpc.ToError(err).With(http.StatusForbidden)), ""
	}
	leave, refused := s.enter(r.By)
	if refused != nil {
		return refused, ""
	}
	defer leave()
	if s.o.Elsewhere != nil && !r.Forwarded {
		return s.serveMachines(ctx, r, q, to)
	}
	return s.serveOwn(ctx, q, r.Forwarded, to)
}

// serveOwn streams the events of this machine's agents; as a part of the stream of another one that merges several, if it is that.
func (s *Streams) serveOwn(ctx context.Context, q query, part bool, to rpc.Writer) (refused *rpc.Error, ended string) {
	c := allEvents{s: s, asked: q, part: part, at: cursor{}, followed: map[string]source{}, batches: make(chan batch)}
	if !q.fresh() && !(part && q.position == fromFirst) {
		var ok bool
		if c.at, ok = parseCursor(q.position, s.code); !ok {
			return new(badPosition(q)), ""
		}
	}
	if registered, _ := s.o.Supervisor.Registrations(0); c.tooMany(registered) {
		return new(manyAgents()), ""
	}
	c.out = rpc.NewStream(to, s.o.Heartbeat)
	running, stop := context.WithCancel(ctx)
	ended = endOf(ctx, c.run(running))
	stop()
	c.work.Wait()
	end(c.out, ended, `"`+c.at.text(s.code)+`"`)
	return nil, ended
}

func badPosition(q query) rpc.Error {
	return badParameter(q.source, "the id of an event, or 0", "Send the id of the last event seen, or 0 for all that is kept.")
}

func manyAgents() rpc.Error {
	return badParameter("parameter agents", "at most 256 agents, and there are more", "Name those that are to be told of, as in agents=worker-1,worker-2.")
}

// allEvents is one stream of many agents: a fan-in. One goroutine for each agent waits for
// its events and hands them to run, which owns every field but batches.
//
// Registrations of agents are followed in their order, one of a name after the other, so that
// each up to at[others] has been streamed or is followed.
type allEvents struct {
	s        *Streams
	asked    query
	part     bool // it is merged with those of other machines: see part.go
	out      *rpc.Stream
	at       cursor
	told     uint64            // of a part: what at[others] was when the other machine was told of it last
	followed map[string]source // by agent; at most maxNames
	batches  chan batch
	work     sync.WaitGroup // the goroutines of the agents that are followed
}

// batch is the next events of one agent, or the error after its last one.
type batch struct {
	agent  string
	events []supervisor.Event
	err    error
	ack    chan<- struct{} // gets a value once the events were written
}

// source is a position in the events of one agent. Next returns the events after it, as that
// of a supervisor.Subscription does.
type source interface {
	Next(ctx context.Context) ([]supervisor.Event, error)
	// Moved reports after io.EOF whether there are no more as another machine has the agent, or was to have it.
	Moved() bool
	Close()
}

// run streams until it fails, and returns why. The goroutines that it starts end with ctx.
func (c *allEvents) run(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	beat := time.NewTicker(c.out.Heartbeat)
	defer beat.Stop()
	for {
		registered, changed := c.s.o.Supervisor.Registrations(c.at[others])
		if err := c.follow(ctx, registered); err != nil {
			return err
		}
		for again := true; again; {
			var err error
			select {
			case b := <-c.batches:
				again = !errors.Is(b.err, io.EOF) // the name may have a next registration
				err = c.send(b)
			case <-changed:
				again = false
			case <-beat.C:
				err = c.out.SendOrBeat(nil)
			case <-ctx.Done():
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
		}
	}
}

// open starts where the client stopped, or with the agents that run now, and sends the
// position where it starts.
func (c *allEvents) open(ctx context.Context) error {
	newest, forgotten := c.s.o.Supervisor.RegisteredUpTo()
	registered, _ := c.s.o.Supervisor.Registrations(0)
	var opened protocol.StreamOpen
	if c.asked.fresh() {
		c.at[others] = newest
		c.followRunning(ctx, registered)
	} else {
		_, named := c.at[others]
		if (named || !c.part) && (c.at[others] < forgotten || c.at[others] > newest) { // there may have been some that nobody remembers
			opened.Gap = true
		}
		if !named || c.at[others] > newest {
			c.at[others] = 0
		}
		c.resume(ctx, registered)
	}
	c.told = c.at[others]
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.code), opened.Name(), protocol.EncodeEvent(opened)))
}

// followRunning follows the agents that run, for a client that knows none.
func (c *allEvents) followRunning(ctx context.Context, registered []supervisor.Registration) {
	for _, reg := range registered {
		if reg.Agent == nil || reg.Number > c.at[others] || !c.wants(reg.ID) || c.part && c.s.moved(reg.ID) {
			continue
		}
		subscribe := reg.Agent.SubscribeNew
		if c.asked.position == "0" {
			subscribe = func() (*supervisor.Subscription, error) { return reg.Agent.Subscribe(0) }
		}
		if sub, err := subscribe(); err == nil { // else it is being removed
			c.begin(ctx, sub, reg.ID, sub.After())
		}
	}
}

// resume goes on with the agents that the client names: with the registration of each that
// the client saw, or, where this server knows none of that name, with what is on disk.
func (c *allEvents) resume(ctx context.Context, registered []supervisor.Registration) {
	saw, known := map[string]supervisor.Registration{}, map[string]bool{}
	for _, reg := range registered {
		known[reg.ID] = true
		if reg.Number <= c.at[others] {
			saw[reg.ID] = reg
		}
	}
	for id, after := range c.at {
		switch reg, ok := saw[id]; {
		case id == others || !c.wants(id):
		case c.part && !c.s.has(id, known[id]): // another machine's part goes on with it
			delete(c.at, id)
		case ok:
			c.begin(ctx, c.sourceOf(reg, after), id, after)
		case !known[id]:
			c.begin(ctx, &storedEvents{s: c.s, id: id, read: after, last: math.MaxUint64}, id, after)
		}
	}
}

// follow follows further registrations in their order. It stops at one whose name has an
// earlier one that is still followed, or for which there is no room yet.
func (c *allEvents) follow(ctx context.Context, registered []supervisor.Registration) error {
	for _, reg := range registered {
		if c.wants(reg.ID) {
			if c.followed[reg.ID] != nil {
				return nil
			}
			if len(c.followed) == maxNames {
				if c.roomSoon() {
					return nil
				}
				return errTooManyAgents
			}
			after, named := c.at[reg.ID]
			if named && after > reg.Since { // numbers began anew
				if err := c.removed(reg.ID); err != nil {
					return err
				}
			}
			if !named || after > reg.Since {
				after = reg.Since
			}
			c.begin(ctx, c.sourceOf(reg, after), reg.ID, after)
			if err := c.tellBegun(reg, after); err != nil {
				return err
			}
		}
		c.at[others] = reg.Number
	}
	return nil
}

// roomSoon reports whether an agent that is followed does not run: its events end.
func (c *allEvents) roomSoon() bool {
	for _, from := range c.followed {
		if _, stored := from.(*storedEvents); stored {
			return true
		}
	}
	return false
}

// sourceOf returns the events of a registration above a number.
func (c *allEvents) sourceOf(reg supervisor.Registration, after uint64) source {
	if reg.Agent != nil {
		return reg.Subscribe(after)
	}
	return &storedEvents{s: c.s, id: reg.ID, reg: reg.Number, read: after, last: reg.Last, moved: reg.Moved}
}

// begin follows an agent, whose events up to the number after the client has.
func (c *allEvents) begin(ctx context.Context, from source, id string, after uint64) {
	c.followed[id], c.at[id] = from, after
	c.makeRoom()
	if sub, ok := from.(*supervisor.Subscription); ok && c.asked.toolOutput {
		sub.FollowOutput()
	}
	c.work.Go(func() { c.read(ctx, id, from) })
}

func (c *allEvents) wants(id string) bool { return c.asked.agents == nil || c.asked.agents[id] }

// tooMany reports whether more agents run than one stream can follow.
func (c *allEvents) tooMany(registered []supervisor.Registration) bool {
	running := 0
	for _, reg := range registered {
		if reg.Agent != nil && c.wants(reg.ID) {
			running++
		}
	}
	return running > maxNames
}

// makeRoom drops from the position the agents that are not followed, while it names too
// many.
func (c *allEvents) makeRoom() {
	for id := range c.at {
		if len(c.at) <= maxNames+1 {
			return
		}
		if id != others && c.followed[id] == nil {
			delete(c.at, id)
		}
	}
}

// read hands over the events of one agent until they or ctx end.
func (c *allEvents) read(ctx context.Context, id string, from source) {
	defer from.Close()
	ack := make(chan struct{}, 1) // so that sending it never waits
	for {
		events, err := from.Next(ctx)
		if errors.Is(err, io.EOF) && c.part && from.Moved() && c.s.o.Agents.Leaves(id) { // whose it is then is known once it has left
			leave, ended := c.s.o.Agents.Enter(ctx, []string{id}, false)
			if ended != nil {
				return
			}
			leave()
		}
		select {
		case c.batches <- batch{agent: id, events: events, err: err, ack: ack}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		select {
		case <-ack:
		case <-ctx.Done():
			return
		}
	}
}

// send writes a batch to the client.
func (c *allEvents) send(b batch) error {
	if errors.Is(b.err, io.EOF) {
		from := c.followed[b.agent]
		ended, stored := from.(*storedEvents)
		delete(c.followed, b.agent)
		if stored && ended.reg == 0 { // it was not removed from this server
			return nil
		}
		if c.part && from.Moved() && c.s.claimed(b.agent) {
			return c.tellMoved(b.agent)
		}
		return c.removed(b.agent)
	}
	if b.err != nil {
		return b.err
	}
	before, after := c.around(b.agent)
	var buf, id, data []byte
	for _, e := range b.events {
		if e.Seq != 0 {
			c.at[b.agent] = e.Seq
		}
		if !c.asked.wants(e.Type) {
			continue
		}
		if id = id[:0]; e.Seq != 0 {
			id = append(strconv.AppendUint(append(id, before...), e.Seq, 10), after...)
		}
		data = appendAgentEvent(data[:0], b.agent, e.Seq, e.Data)
		buf = rpc.AppendEvent(buf, id, e.Type, data)
	}
	b.ack <- struct{}{}
	if len(buf) > 0 {
		c.told = c.at[others]
	}
	return c.out.SendOrBeat(buf)
}

// around is the text of the position before and after the number of one agent.
func (c *allEvents) around(agent string) (before, after string) {
	if c.part {
		return c.partAround(agent)
	}
	const mark = "?" // in no cursor
	before, after, _ = strings.Cut(string(c.at.appendAround(agent, []byte(mark), c.s.code)), mark)
	return before, after
}

// removed writes that an agent was removed, and the number of its last event.
func (c *allEvents) removed(id string) error {
	e := protocol.AgentRemoved{Last: c.at[id]}
	delete(c.at, id)
	at := ""
	if !c.part {
		at = c.at.text(c.s.code)
	}
	return c.out.Send(rpc.AppendEvent(nil, at, e.Name(), appendAgentEvent(nil, id, 0, protocol.EncodeEvent(e))))
}

// appendAgentEvent appends an event with the id of its agent, and its number unless that is 0. The
// event itself is appended byte for byte.
func appendAgentEvent(buf []byte, agent string, seq uint64, event []byte) []byte {
	buf = append(append(append(buf, `{"agent_id":"`...), agent...), '"')
	if seq != 0 {
		buf = strconv.AppendUint(append(buf, `,"seq":`...), seq, 10)
	}
	return append(append(append(buf, `,"event":`...), event...), '}')
}
