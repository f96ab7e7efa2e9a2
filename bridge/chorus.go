package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// errCrowded says that there are more agents than one stream can tell of.
var errCrowded = errors.New("more agents than one stream can tell of")

// others is the place in a cursor for all agents that it does not name.
const others = "*"

// cursor is how far a stream of many agents has got: for each of them the number
// of its last event, and for others the number of the last life (supervisor.Life)
// that it has told of, or tells of by name. Its text is NAME:NUMBER,NAME:NUMBER, by
// name, where the number of others is written by a lifeCode.
type cursor map[string]uint64

func (c cursor) text(code lifeCode) string { return string(c.appendAround("", nil, code)) }

// appendAround appends the cursor, with number in the place of what it has of id.
func (c cursor) appendAround(id string, number []byte, code lifeCode) (text []byte) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if text != nil {
			text = append(text, ',')
		}
		text = append(append(text, name...), ':')
		switch name {
		case id:
			text = append(text, number...)
		case others:
			text = code.append(text, c[name])
		default:
			text = strconv.AppendUint(text, c[name], 10)
		}
	}
	return text
}

func parseCursor(text string, code lifeCode) (cursor, bool) {
	c := cursor{}
	for one := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(one, ":")
		seq, err := strconv.ParseUint(number, 10, 64)
		readable := err == nil
		if name == others {
			seq, readable = code.read(number)
		}
		if _, twice := c[name]; twice || !readable || name != others && !api.ValidAgentID(name) || len(c) > maxNames {
			return nil, false
		}
		c[name] = seq
	}
	return c, true
}

// serveAllEvents streams the events of all agents, or of those that are named, as
// they come (SPEC §6.4). Agents that are created meanwhile are told of from their
// first event. It starts no agent.
func (s *Server) serveAllEvents(x *exchange, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if s.requests.Closed() {
		s.refuse(x, draining)
		return
	}
	asked, wrong := readEventsQuery(x.r.Header, query, "after", "types", "agents")
	if wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	whose := "" // all, or several
	if len(asked.agents) == 1 {
		whose = slices.Collect(maps.Keys(asked.agents))[0]
	}
	if wrong := reach(x.by, whose); wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	c := chorus{s: s, asked: asked, at: cursor{}, followed: map[string]source{}, batches: make(chan batch)}
	if asked.position != "" && asked.position != "0" {
		var ok bool
		if c.at, ok = parseCursor(asked.position, s.lives); !ok {
			s.refuse(x, badEvents(asked.source, "the id of an event, or 0", "Send the id of the last event seen, or 0 for all that is kept."))
			return
		}
	}
	if lives, _ := s.o.Supervisor.Lives(0); c.crowded(lives) {
		s.refuse(x, badEvents("parameter agents", "at most 256 agents, and there are more", "Name those that are to be told of, as in agents=worker-1,worker-2."))
		return
	}
	leave, ok := s.enterStreams(x)
	if !ok {
		return
	}
	defer leave()
	ctx, stop := context.WithCancel(x.r.Context())
	err := c.run(ctx, s.openStream(x))
	reason := endOf(x.r.Context(), err)
	stop()
	c.work.Wait()
	c.out.end(reason, `"`+c.at.text(c.s.lives)+`"`)
	x.log.ended = reason
}

// chorus is one stream of many agents. One goroutine for each agent waits for its
// events and hands them to run, which owns all but batches. Lives are begun in
// their order, so that everything before at[others] is told or is being told.
type chorus struct {
	s        *Server
	asked    eventsQuery
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
	taken  chan<- struct{} // gets a value once events were used
}

// source is a place in the events of one agent. Next is as that of a
// supervisor.Subscription.
type source interface {
	Next(ctx context.Context) ([]supervisor.Event, error)
	Close()
}

// run returns why the stream ends. Its goroutines end with ctx.
func (c *chorus) run(ctx context.Context, out *stream) error {
	c.out = out
	if err := c.open(ctx); err != nil {
		return err
	}
	beat := time.NewTicker(out.heartbeat)
	defer beat.Stop()
	for {
		lives, changed := c.s.o.Supervisor.Lives(c.at[others])
		if err := c.follow(ctx, lives); err != nil {
			return err
		}
		for again := true; again; {
			var err error
			select {
			case b := <-c.batches:
				again = !errors.Is(b.err, io.EOF) // there may be another one of that name
				err = c.tell(b)
			case <-changed:
				again = false
			case <-beat.C:
				err = out.sendOrBeat(nil)
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
func (c *chorus) open(ctx context.Context) error {
	newest, forgotten := c.s.o.Supervisor.LivesUpTo()
	lives, _ := c.s.o.Supervisor.Lives(0)
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
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.lives), told.Name(), encodeEvent(told)))
}

// enter begins with the agents that run, for a client that knows none.
func (c *chorus) enter(ctx context.Context, lives []supervisor.Life) {
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
func (c *chorus) resume(ctx context.Context, lives []supervisor.Life) {
	saw, lived := map[string]supervisor.Life{}, map[string]bool{}
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
			c.begin(ctx, &past{s: c.s, id: id, read: after, last: math.MaxUint64}, id, after)
		}
	}
}

// follow begins to tell of lives, in their order, as far as that can be now: an
// earlier life of the agent is told to its end before.
func (c *chorus) follow(ctx context.Context, lives []supervisor.Life) error {
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
func (c *chorus) ending() bool {
	for _, from := range c.followed {
		if _, over := from.(*past); over {
			return true
		}
	}
	return false
}

func (c *chorus) sourceOf(life supervisor.Life, after uint64) source {
	if life.Agent != nil {
		return life.Subscribe(after)
	}
	return &past{s: c.s, id: life.ID, life: life.Number, read: after, last: life.Last}
}

// begin tells of an agent from now on.
func (c *chorus) begin(ctx context.Context, from source, id string, after uint64) {
	c.followed[id], c.at[id] = from, after
	c.makeRoom()
	c.work.Go(func() { c.read(ctx, id, from) })
}

// wants reports whether the client asked for that agent.
func (c *chorus) wants(id string) bool { return c.asked.agents == nil || c.asked.agents[id] }

// crowded reports whether there are more agents than can be told of.
func (c *chorus) crowded(lives []supervisor.Life) bool {
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
func (c *chorus) makeRoom() {
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
func (c *chorus) read(ctx context.Context, id string, from source) {
	defer from.Close()
	taken := make(chan struct{}, 1) // so that telling it never waits
	for {
		events, err := from.Next(ctx)
		select {
		case c.batches <- batch{agent: id, events: events, err: err, taken: taken}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return
		}
	}
}

// tell passes on a batch.
func (c *chorus) tell(b batch) error {
	if errors.Is(b.err, io.EOF) {
		before, over := c.followed[b.agent].(*past)
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
	before, after, _ := strings.Cut(string(c.at.appendAround(b.agent, []byte(mark), c.s.lives)), mark)
	var buf, id, data []byte
	for _, e := range b.events {
		c.at[b.agent] = e.Seq
		if !wanted(c.asked.types, e.Type) {
			continue
		}
		id = append(strconv.AppendUint(append(id[:0], before...), e.Seq, 10), after...)
		data = about(data[:0], b.agent, e.Seq, e.Data)
		buf = rpc.AppendEvent(buf, id, e.Type, data)
	}
	b.taken <- struct{}{}
	return c.out.sendOrBeat(buf)
}

// removed tells that an agent is gone, after which event of it.
func (c *chorus) removed(id string) error {
	e := protocol.AgentRemoved{Last: c.at[id]}
	delete(c.at, id)
	return c.out.Send(rpc.AppendEvent(nil, c.at.text(c.s.lives), e.Name(), about(nil, id, 0, encodeEvent(e))))
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
