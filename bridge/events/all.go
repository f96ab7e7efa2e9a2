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

// errCrowded says that there are more agents than one stream can tell of.
var errCrowded = errors.New("more agents than one stream can tell of")

// serveAll streams the events of all agents, or of those that are named, as
// they come. Agents that are created meanwhile are told of from their
// first event. It starts no agent.
func (s *Streams) serveAll(ctx context.Context, by rpc.Principal, q query, open func() rpc.Writer) (refused *rpc.Error, ended string) {
	whose := "" // all, or several
	if len(q.agents) == 1 {
		whose = slices.Collect(maps.Keys(q.agents))[0]
	}
	if err := by.MayReach(whose); err != nil {
		return new(rpc.ToError(err).With(http.StatusForbidden)), ""
	}
	c := allEvents{s: s, asked: q, at: cursor{}, followed: map[string]source{}, batches: make(chan batch)}
	if q.position != "" && q.position != "0" {
		var ok bool
		if c.at, ok = parseCursor(q.position, s.code); !ok {
			return new(badParameter(q.source, "the id of an event, or 0", "Send the id of the last event seen, or 0 for all that is kept.")), ""
		}
	}
	if lives, _ := s.o.Supervisor.Registrations(0); c.crowded(lives) {
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

// allEvents is one stream of many agents. One goroutine for each agent waits for its
// events and hands them to run, which owns all but batches. Lives are begun in
// their order, so that everything before at[others] is told or is being told.
type allEvents struct {
	s        *Streams
	asked    query
	out      *stream
	at       cursor
	followed map[string]source // those that are being told of, at most maxNames
	batches  chan batch
	work     sync.WaitGroup // one for each that is followed
}

// batch is what one agent did, or why nothing more comes of it.
type batch struct {
	agent  string
	events []supervisor.Event
	err    error
	ack    chan<- struct{} // gets a value once events were used
}

// source is a place in the events of one agent. Next is as that of a
// supervisor.Subscription.
type source interface {
	Next(ctx context.Context) ([]supervisor.Event, error)
	Close()
}

// run returns why the stream ends. Its goroutines end with ctx.
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
				again = !errors.Is(b.err, io.EOF) // there may be another one of that name
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

// open takes up where the client was, or with the agents that run now, and tells
// it where it stands.
func (c *allEvents) open(ctx context.Context) error {
	newest, forgotten := c.s.o.Supervisor.RegisteredUpTo()
	lives, _ := c.s.o.Supervisor.Registrations(0)
	var told protocol.StreamOpen
	if c.asked.position == "" || c.asked.position == "0" {
		c.at[others] = newest
		c.enter(ctx, lives)
	} else {
		if c.at[others] < forgotten || c.at[others] > newest { // perhaps there were some more
			told.Gap = true
		}
		if _, named := c.at[others]; !named || c.at[others] > newest {
			c.at[others] = 0
		}
		c.resume(ctx, lives)
	}
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.code), told.Name(), encodeEvent(told)))
}

// enter begins with the agents that run, for a client that knows none.
func (c *allEvents) enter(ctx context.Context, lives []supervisor.Registration) {
	for _, life := range lives {
		if life.Agent == nil || life.Number > c.at[others] || !c.wants(life.ID) {
			continue
		}
		subscribe := life.Agent.SubscribeNew
		if c.asked.position == "0" {
			subscribe = func() (*supervisor.Subscription, error) { return life.Agent.Subscribe(0) }
		}
		if sub, err := subscribe(); err == nil { // else it is on its way out
			c.begin(ctx, sub, life.ID, sub.After())
		}
	}
}

// resume goes on with the agents that the client knows: with the life of each that
// it saw, or, where this server knows of none, with what is on disk.
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

// follow begins to tell of lives, in their order, as far as that can be now: an
// earlier life of the agent is told to its end before.
func (c *allEvents) follow(ctx context.Context, lives []supervisor.Registration) error {
	for _, life := range lives {
		if c.wants(life.ID) {
			if c.followed[life.ID] != nil {
				return nil
			}
			if len(c.followed) == maxNames {
				if c.ending() {
					return nil
				}
				return errCrowded
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

// ending reports whether some that are told of do not run, so that there will be
// room.
func (c *allEvents) ending() bool {
	for _, from := range c.followed {
		if _, over := from.(*storedEvents); over {
			return true
		}
	}
	return false
}

func (c *allEvents) sourceOf(life supervisor.Registration, after uint64) source {
	if life.Agent != nil {
		return life.Subscribe(after)
	}
	return &storedEvents{s: c.s, id: life.ID, life: life.Number, read: after, last: life.Last}
}

// begin tells of an agent from now on.
func (c *allEvents) begin(ctx context.Context, from source, id string, after uint64) {
	c.followed[id], c.at[id] = from, after
	c.makeRoom()
	c.work.Go(func() { c.read(ctx, id, from) })
}

// wants reports whether the client asked for that agent.
func (c *allEvents) wants(id string) bool { return c.asked.agents == nil || c.asked.agents[id] }

// crowded reports whether there are more agents than can be told of.
func (c *allEvents) crowded(lives []supervisor.Registration) bool {
	running := 0
	for _, life := range lives {
		if life.Agent != nil && c.wants(life.ID) {
			running++
		}
	}
	return running > maxNames
}

// makeRoom forgets how far the client got with agents that do not run, where
// there are too many.
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

// read hands over what one agent does until that ends, or ctx does.
func (c *allEvents) read(ctx context.Context, id string, from source) {
	defer from.Close()
	ack := make(chan struct{}, 1) // so that telling it never waits
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

// send passes on a batch.
func (c *allEvents) send(b batch) error {
	if errors.Is(b.err, io.EOF) {
		before, over := c.followed[b.agent].(*storedEvents)
		delete(c.followed, b.agent)
		if over && before.life == 0 { // nobody removed it in this server
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
		data = about(data[:0], b.agent, e.Seq, e.Data)
		buf = rpc.AppendEvent(buf, id, e.Type, data)
	}
	b.ack <- struct{}{}
	return c.out.sendOrBeat(buf)
}

// removed tells that an agent is gone, after which event of it.
func (c *allEvents) removed(id string) error {
	e := protocol.AgentRemoved{Last: c.at[id]}
	delete(c.at, id)
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.code), e.Name(), about(nil, id, 0, encodeEvent(e))))
}

// about appends an event with whose it is, and its number unless that is 0. The
// event is passed on as it is.
func about(buf []byte, agent string, seq uint64, event []byte) []byte {
	buf = append(append(append(buf, `{"agent_id":"`...), agent...), '"')
	if seq != 0 {
		buf = strconv.AppendUint(append(buf, `,"seq":`...), seq, 10)
	}
	return append(append(append(buf, `,"event":`...), event...), '}')
}
