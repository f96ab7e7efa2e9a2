package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// serveEvents streams the events of an agent (SPEC §6.4): those after the
// number that the client names, else only what comes.
func (s *Server) serveEvents(x *exchange, id, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if s.requests.Closed() {
		s.refuse(x, draining)
		return
	}
	var after uint64
	asked, wrong := readEventsQuery(x.r.Header, query, "after", "types")
	if wrong == nil && asked.position != "" {
		var err error
		if after, err = strconv.ParseUint(asked.position, 10, 64); err != nil {
			wrong = new(badEvents(asked.source, "a non-negative integer", "Send the id of the last event seen, or 0 for all that is kept."))
		}
	}
	if wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	leave, ok := s.enterStreams(x)
	if !ok {
		return
	}
	defer leave()
	ctx := x.r.Context()
	if err := s.checkStart(x.by, id, false); err != nil {
		s.refuse(x, rpc.ToError(err).With(http.StatusForbidden))
		return
	}
	a, err := s.agent(ctx, id)
	if err != nil {
		s.refuse(x, rpc.ToError(err))
		return
	}
	subscribe := func() (*supervisor.Subscription, error) { return a.Subscribe(after) }
	if asked.position == "" {
		subscribe = a.SubscribeNew
	}
	sub, err := subscribe()
	if err != nil {
		s.refuse(x, rpc.ToError(destroyed(id, err)))
		return
	}
	defer sub.Close()
	out := s.openStream(x)
	if out.Send([]byte(": open\n\n")) != nil {
		return
	}
	reason := endOf(ctx, pump(ctx, sub, asked.types, out))
	out.end(reason, strconv.FormatUint(sub.After(), 10))
	x.log.agent, x.log.ended = id, reason
}

// enterStreams refuses one more stream of events than may be open; leave must
// follow if it does not.
func (s *Server) enterStreams(x *exchange) (leave func(), ok bool) {
	if full := s.streams.take(x.by.Grant); full != "" {
		s.refuse(x, manyStreams(full))
		return nil, false
	}
	return func() { s.streams.leave(x.by.Grant) }, true
}

// eventsQuery is what a client asks of a stream of events.
type eventsQuery struct {
	// position is after which events; "" if nothing was said. source names where
	// that stands.
	position, source string
	types            map[string]bool // nil: all
	agents           map[string]bool // nil: all
}

// maxNames bounds the types and the agents that a query names.
const maxNames = 256

// readEventsQuery reads the query, which may have the members named. For the
// position, the header wins over it: a browser's EventSource repeats the URL and says
// in the header how far it got.
func readEventsQuery(h http.Header, query string, members ...string) (q eventsQuery, wrong *rpc.Error) {
	values, wrong := readQuery(query, members...)
	if wrong != nil {
		return q, wrong
	}
	q.position, q.source = h.Get("Last-Event-ID"), "header Last-Event-ID"
	if q.position == "" {
		q.position, q.source = values.Get("after"), "parameter after"
	}
	const names = "names set apart by commas, at most 256"
	var ok bool
	if q.types, ok = nameSet(values, "types", func(name string) bool { return name != "" }); !ok {
		return q, new(badEvents("parameter types", names, "Name types of events, as in types=turn_end,error."))
	}
	if q.agents, ok = nameSet(values, "agents", api.ValidAgentID); !ok {
		return q, new(badEvents("parameter agents", names, "Name agents, as in agents=worker-1,worker-2."))
	}
	return q, nil
}

// readQuery reads a query that may have the members named, each of them once.
func readQuery(query string, members ...string) (values url.Values, wrong *rpc.Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, new(badQuery("Invalid query: want NAME=VALUE&…", "Escape what is not a letter or digit."))
	}
	way := "Leave out the query."
	if len(members) > 0 {
		way = "Known are: " + strings.Join(members, ", ") + "."
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(members, name):
			return nil, new(badQuery("Unknown parameter: "+clipName(name), way))
		case len(values[name]) > 1:
			return nil, new(badQuery("Invalid parameter "+name+": stands twice", "Name it once."))
		}
	}
	return values, nil
}

// nameSet reads a list of names; nil if there is none.
func nameSet(values url.Values, key string, valid func(string) bool) (set map[string]bool, ok bool) {
	if !values.Has(key) {
		return nil, true
	}
	set = map[string]bool{}
	for name := range strings.SplitSeq(values.Get(key), ",") {
		if set[name] = true; !valid(name) || len(set) > maxNames {
			return nil, false
		}
	}
	return set, true
}

// wanted reports whether an event passes a filter; a gap always does.
func wanted(types map[string]bool, name string) bool {
	return types == nil || types[name] || name == "gap"
}

// maxKept is how large a buffer is kept for the next batch: a large event is rare.
const maxKept = 128 << 10

// pump writes what the subscription gives, a batch at a time, until something
// fails: the client (its error), the subscription or ctx.
func pump(ctx context.Context, sub *supervisor.Subscription, types map[string]bool, out *stream) error {
	var buf, id []byte
	for {
		events, err := nextEvents(ctx, sub, out)
		if err != nil {
			return err
		}
		if buf = buf[:0]; cap(buf) > maxKept {
			buf = nil
		}
		for _, e := range events {
			if wanted(types, e.Type) {
				id = strconv.AppendUint(id[:0], e.Seq, 10)
				buf = rpc.AppendEvent(buf, id, e.Type, e.Data)
			}
		}
		if err := out.sendOrBeat(buf); err != nil {
			return err
		}
	}
}

// nextEvents waits for events and keeps the stream alive meanwhile.
func nextEvents(ctx context.Context, sub *supervisor.Subscription, out *stream) ([]supervisor.Event, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, out.heartbeat)
		events, err := sub.Next(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return events, err
		}
		if err := out.Beat(); err != nil {
			return nil, err
		}
	}
}

// stream is an open text/event-stream response.
type stream struct {
	x         *exchange
	timeout   time.Duration // for one batch
	heartbeat time.Duration // between signs of life
	sent      time.Time     // when something was
}

func (s *Server) openStream(x *exchange) *stream {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	return &stream{x: x, timeout: s.o.WriteTimeout, heartbeat: s.o.Heartbeat, sent: time.Now()}
}

// Send writes a batch and flushes it. A client that does not take it within
// the timeout loses its connection.
func (st *stream) Send(batch []byte) error {
	st.sent = time.Now()
	_ = st.x.rc.SetWriteDeadline(st.sent.Add(st.timeout))
	if _, err := st.x.w.Write(batch); err != nil {
		return rpc.ErrSlowClient
	}
	if err := st.x.rc.Flush(); err != nil {
		return rpc.ErrSlowClient
	}
	return nil
}

// sendOrBeat sends a batch; instead of an empty one it gives a sign of life, if
// it is time for that.
func (st *stream) sendOrBeat(batch []byte) error {
	switch {
	case len(batch) > 0:
		return st.Send(batch)
	case time.Since(st.sent) >= st.heartbeat:
		return st.Beat()
	default:
		return nil
	}
}

// Beat is a sign of life that means nothing.
func (st *stream) Beat() error { return st.Send([]byte(": heartbeat\n\n")) }

// Why a stream of events ends. The first four are said to the client.
const (
	endSlow     = "slow"     // it fell too far behind
	endRemoved  = "removed"  // the agent was destroyed
	endDraining = "draining" // the server is shutting down
	endRevoked  = "revoked"  // the key is not good any more
	endCrowded  = "crowded"  // of a stream of all agents: there are more than maxNames
	endUnread   = "unread"   // it did not take a batch in time, or broke the connection
	endLeft     = "left"     // it closed the connection
)

func endOf(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, supervisor.ErrSlow):
		return endSlow
	case errors.Is(err, errCrowded):
		return endCrowded
	case errors.Is(err, io.EOF):
		return endRemoved
	case errors.Is(context.Cause(ctx), supervisor.ErrDraining):
		return endDraining
	case errors.Is(context.Cause(ctx), errKeyEnded):
		return endRevoked
	case errors.Is(err, rpc.ErrSlowClient):
		return endUnread
	default:
		return endLeft
	}
}

// encodeEvent writes an event of ours, whose texts are plain.
func encodeEvent(e protocol.Event) []byte {
	data, err := protocol.AppendEvent(nil, e)
	if err != nil {
		panic("bridge: " + err.Error())
	}
	return data
}

// end says why the stream ends, where there is somebody to tell, and after which
// position, as JSON, another one may go on.
func (st *stream) end(reason, after string) {
	e := protocol.StreamEnd{Reason: reason}
	switch reason {
	case endUnread, endLeft:
		return
	case endSlow, endDraining, endCrowded:
		e.After = jsontext.Value(after)
	}
	_ = st.Send(rpc.AppendEvent(nil, "", e.Name(), encodeEvent(e)))
}
