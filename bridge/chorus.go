package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// errCrowded says that there are more agents than one stream can tell of.
var errCrowded = errors.New("more agents than one stream can tell of")

// cursor is how far a stream of many agents has got: for each of them the number
// of its last event. Its text is NAME:NUMBER,NAME:NUMBER, by name; "-" for none.
type cursor map[string]uint64

func (c cursor) String() string { return string(c.appendAround("", nil)) }

// appendAround appends the cursor, with number in the place of what it has of id.
func (c cursor) appendAround(id string, number []byte) (text []byte) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if text != nil {
			text = append(text, ',')
		}
		text = append(append(text, name...), ':')
		if name == id {
			text = append(text, number...)
		} else {
			text = strconv.AppendUint(text, c[name], 10)
		}
	}
	if text == nil {
		return []byte("-")
	}
	return text
}

func parseCursor(text string) (cursor, bool) {
	c := cursor{}
	if text == "-" {
		return c, true
	}
	for one := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(one, ":")
		seq, err := strconv.ParseUint(number, 10, 64)
		if _, twice := c[name]; twice || err != nil || !api.ValidAgentID(name) || len(c) == maxNames {
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
	if s.requests.isClosed() {
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
	if wrong := x.pass.reach(whose); wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	c := chorus{s: s, asked: asked, followed: map[string]bool{}, batches: make(chan batch)}
	switch asked.position {
	case "":
		c.at = cursor{}
	case "0":
		c.at, c.all = cursor{}, true
	default:
		var ok bool
		if c.at, ok = parseCursor(asked.position); !ok {
			s.refuse(x, badEvents(asked.source, "the id of an event, or 0", "Send the id of the last event seen, or 0 for all that is kept."))
			return
		}
		c.resumed = true
	}
	if agents, _ := s.o.Supervisor.Watch(); asked.agents == nil && len(agents) > maxNames {
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
	c.out.end(reason, `"`+c.at.String()+`"`)
	s.logStream(x, "", reason)
}

// chorus is one stream of many agents. One goroutine for each agent waits for its
// events and hands them to run, which owns all but batches.
type chorus struct {
	s        *Server
	asked    eventsQuery
	out      *stream
	at       cursor
	resumed  bool // at is what the client had
	listed   bool // those that were there at the beginning are followed
	followed map[string]bool
	all      bool // all that is kept is wanted
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

// run returns why the stream ends. Its goroutines end with ctx.
func (c *chorus) run(ctx context.Context, out *stream) error {
	c.out = out
	beat := time.NewTicker(out.heartbeat)
	defer beat.Stop()
	for {
		agents, changed := c.s.o.Supervisor.Watch()
		if err := c.follow(ctx, agents); err != nil {
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

// follow subscribes to the agents that are not followed yet. The first time it
// tells the client where it stands.
func (c *chorus) follow(ctx context.Context, agents []*supervisor.Agent) error {
	for _, a := range agents {
		id := a.ID()
		if c.followed[id] || c.asked.agents != nil && !c.asked.agents[id] {
			continue
		}
		after, known := c.at[id]
		subscribe := func() (*supervisor.Subscription, error) { return a.Subscribe(after) }
		switch {
		case known || !c.listed && c.all:
		case c.listed || c.resumed: // it came later than what the client saw
			after = a.Since()
		default:
			subscribe = a.SubscribeNew
		}
		sub, err := subscribe()
		if err != nil {
			continue // it is on its way out
		}
		if len(c.followed) == maxNames {
			sub.Close()
			return errCrowded
		}
		c.followed[id] = true
		c.at[id] = sub.After()
		c.makeRoom()
		c.work.Go(func() { c.read(ctx, id, sub) })
	}
	if c.listed {
		return nil
	}
	c.listed = true
	return c.out.send(appendEvent(nil, c.at.String(), "open", []byte(`{"type":"open"}`)))
}

// makeRoom forgets how far the client got with agents that do not run, where
// there are too many.
func (c *chorus) makeRoom() {
	for id := range c.at {
		if len(c.at) <= maxNames {
			return
		}
		if !c.followed[id] {
			delete(c.at, id)
		}
	}
}

// read hands over what one agent does until that ends, or ctx does.
func (c *chorus) read(ctx context.Context, id string, sub *supervisor.Subscription) {
	defer sub.Close()
	taken := make(chan struct{}, 1) // so that telling it never waits
	for {
		events, err := sub.Next(ctx)
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
		delete(c.followed, b.agent)
		delete(c.at, b.agent)
		return c.out.send(appendEvent(nil, c.at.String(), "agent_removed", about(nil, b.agent, 0, []byte(`{"type":"agent_removed"}`))))
	}
	if b.err != nil {
		return b.err
	}
	const mark = "?" // in no cursor
	before, after, _ := strings.Cut(string(c.at.appendAround(b.agent, []byte(mark))), mark)
	var buf, id, data []byte
	for _, e := range b.events {
		c.at[b.agent] = e.Seq
		if !wanted(c.asked.types, e.Type) {
			continue
		}
		id = append(strconv.AppendUint(append(id[:0], before...), e.Seq, 10), after...)
		data = about(data[:0], b.agent, e.Seq, e.Data)
		buf = appendEvent(buf, id, e.Type, data)
	}
	b.taken <- struct{}{}
	return c.out.sendOrBeat(buf)
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
