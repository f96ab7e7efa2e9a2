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

// serveAll streams the events of all agents, or of those that are named, as they come. Of an
// agent that is created meanwhile it streams every event. It starts no agent.
func (s *Streams) serveAll(ctx context.Context, by rpc.Principal, q query, open func() rpc.Writer) (refused *rpc.Error, ended string) {
	agent := "" // all, or several
	if len(q.agents) == 1 {
		agent = slices.Collect(maps.Keys(q.agents))[0]
	}
	if err := by.MayReach(agent); err != nil {
		return new(rpc.ToError(err).With(http.StatusForbidden)), ""
	}
	c := allEvents{s: s, asked: q, at: cursor{}, followed: map[string]source{}, batches: make(chan batch)}
	if q.position != "" && q.position != "0" {
		var ok bool
		if c.at, ok = parseCursor(q.position, s.code); !ok {
			return new(badParameter(q.source, "the id of an event, or 0", "Send the id of the last event seen, or 0 for all that is kept.")), ""
		}
	}
	if lives, _ := s.o.Supervisor.Registrations(0); c.tooMany(lives) {
		return new(badParameter("parameter agents", "at most 256 agents, and there are more",
			"Name those that are to be told of, as in agents=worker-1,worker-2.")), ""
	}
	leave, refused := s.enter(by)
	if refused != nil {
		return refused, ""
	}
	defer leave()
	c.out = newStream(open(), s.o.Heartbeat)
	running, stop := context.WithCancel(ctx)
	ended = endOf(ctx, c.run(running))
	stop()
	c.work.Wait()
	c.out.end(ended, `"`+c.at.text(s.code)+`"`)
	return nil, ended
}

// allEvents is one stream of many agents: a fan-in. One goroutine for each agent waits for
// its events and hands them to run, which owns every field but batches.
//
// An agent has a life from its creation to its removal; a name can have several, one after
// the other. Lives are followed in their order, so that each life up to at[others] has been
// streamed or is followed.
type allEvents struct {
	s        *Streams
	asked    query
	out      *stream
	at       cursor
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
	Close()
}

// run streams until it fails, and returns why. The goroutines that it starts end with ctx.
func (c *allEvents) run(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	beat := time.NewTicker(c.out.heartbeat)
	defer beat.Stop()
	for {
		lives, changed := c.s.o.Supervisor.Registrations(c.at[others])
		if err := c.follow(ctx, lives); err != nil {
			return err
		}
		for again := true; again; {
			var err error
			select {
			case b := <-c.batches:
				again = !errors.Is(b.err, io.EOF) // the name may have a next life
				err = c.send(b)
			case <-changed:
				again = false
			case <-beat.C:
				err = c.out.sendOrBeat(nil)
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
	lives, _ := c.s.o.Supervisor.Registrations(0)
	var opened protocol.StreamOpen
	if c.asked.position == "" || c.asked.position == "0" {
		c.at[others] = newest
		c.followRunning(ctx, lives)
	} else {
		if c.at[others] < forgotten || c.at[others] > newest { // there may have been lives that nobody remembers
			opened.Gap = true
		}
		if _, named := c.at[others]; !named || c.at[others] > newest {
			c.at[others] = 0
		}
		c.resume(ctx, lives)
	}
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.code), opened.Name(), encodeEvent(opened)))
}

// followRunning follows the agents that run, for a client that knows none.
func (c *allEvents) followRunning(ctx context.Context, lives []supervisor.Registration) {
	for _, life := range lives {
		if life.Agent == nil || life.Number > c.at[others] || !c.wants(life.ID) {
			continue
		}
		subscribe := life.Agent.SubscribeNew
		if c.asked.position == "0" {
			subscribe = func() (*supervisor.Subscription, error) { return life.Agent.Subscribe(0) }
		}
		if sub, err := subscribe(); err == nil { // else it is being removed
			c.begin(ctx, sub, life.ID, sub.After())
		}
	}
}

// resume goes on with the agents that the client names: with the life of each that the client
// saw, or, where this server knows no life of that name, with what is on disk.
func (c *allEvents) resume(ctx context.Context, lives []supervisor.Registration) {
	saw, lived := map[string]supervisor.Registration{}, map[string]bool{}
	for _, life := range lives {
		lived[life.ID] = true
		if life.Number <= c.at[others] {
			saw[life.ID] = life
		}
	}
	for id, after := range c.at {
		switch life, ok := saw[id]; {
		case id == others || !c.wants(id):
		case ok:
			c.begin(ctx, c.sourceOf(life, after), id, after)
		case !lived[id]:
			c.begin(ctx, &storedEvents{s: c.s, id: id, read: after, last: math.MaxUint64}, id, after)
		}
	}
}

// follow follows further lives in their order. It stops at one whose agent still has an
// earlier life that is followed, or for which there is no room yet.
func (c *allEvents) follow(ctx context.Context, lives []supervisor.Registration) error {
	for _, life := range lives {
		if c.wants(life.ID) {
			if c.followed[life.ID] != nil {
				return nil
			}
			if len(c.followed) == maxNames {
				if c.roomSoon() {
					return nil
				}
				return errTooManyAgents
			}
			after, named := c.at[life.ID]
			if named && after > life.Since { // numbers began anew
				if err := c.removed(life.ID); err != nil {
					return err
				}
			}
			if !named || after > life.Since {
				after = life.Since
			}
			c.begin(ctx, c.sourceOf(life, after), life.ID, after)
		}
		c.at[others] = life.Number
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

// sourceOf returns the events of a life above a number.
func (c *allEvents) sourceOf(life supervisor.Registration, after uint64) source {
	if life.Agent != nil {
		return life.Subscribe(after)
	}
	return &storedEvents{s: c.s, id: life.ID, life: life.Number, read: after, last: life.Last}
}

// begin follows an agent, whose events up to the number after the client has.
func (c *allEvents) begin(ctx context.Context, from source, id string, after uint64) {
	c.followed[id], c.at[id] = from, after
	c.makeRoom()
	c.work.Go(func() { c.read(ctx, id, from) })
}

// wants reports whether the client asked for that agent.
func (c *allEvents) wants(id string) bool { return c.asked.agents == nil || c.asked.agents[id] }

// tooMany reports whether more agents run than one stream can follow.
func (c *allEvents) tooMany(lives []supervisor.Registration) bool {
	running := 0
	for _, life := range lives {
		if life.Agent != nil && c.wants(life.ID) {
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
		ended, stored := c.followed[b.agent].(*storedEvents)
		delete(c.followed, b.agent)
		if stored && ended.life == 0 { // it was not removed from this server
			return nil
		}
		return c.removed(b.agent)
	}
	if b.err != nil {
		return b.err
	}
	const mark = "?" // in no cursor
	before, after, _ := strings.Cut(string(c.at.appendAround(b.agent, []byte(mark), c.s.code)), mark)
	var buf, id, data []byte
	for _, e := range b.events {
		c.at[b.agent] = e.Seq
		if !c.asked.wants(e.Type) {
			continue
		}
		id = append(strconv.AppendUint(append(id[:0], before...), e.Seq, 10), after...)
		data = appendAgentEvent(data[:0], b.agent, e.Seq, e.Data)
		buf = rpc.AppendEvent(buf, id, e.Type, data)
	}
	b.ack <- struct{}{}
	return c.out.sendOrBeat(buf)
}

// removed writes that an agent was removed, and the number of its last event.
func (c *allEvents) removed(id string) error {
	e := protocol.AgentRemoved{Last: c.at[id]}
	delete(c.at, id)
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.code), e.Name(), appendAgentEvent(nil, id, 0, encodeEvent(e))))
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
