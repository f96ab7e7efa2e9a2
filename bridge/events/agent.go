package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
)

// serveAgent streams the events of one agent: those after the number that the client
// names, else only what comes.
func (s *Streams) serveAgent(ctx context.Context, r Request, q query, to rpc.Writer) (refused *rpc.Error, ended string) {
	var after uint64
	if q.position != "" {
		var err error
		if after, err = strconv.ParseUint(q.position, 10, 64); err != nil {
			return new(badParameter(q.source, "a non-negative integer", "Send the id of the last event seen, or 0 for all that is kept.")), ""
		}
	}
	leave, refused := s.enter(r.By)
	if refused != nil {
		return refused, ""
	}
	defer leave()
	out := rpc.NewStream(to, s.o.Heartbeat)
	for try := 0; ; try++ {
		begun := q.position
		refused, ended = s.follow(ctx, r, &q, after, out)
		if refused != nil && refused.Moved == nil || refused == nil && ended != endMoved || r.Forwarded {
			break
		}
		if q.position != begun { // since the last attempt there were events
			try = 0
		}
		if try >= moves || ratelimit.Sleep(ctx, movedDelay) != nil { // where it is may not be known everywhere yet
			break
		}
		after, _ = strconv.ParseUint(q.position, 10, 64) // as it was written here
	}
	switch {
	case refused != nil && out.Opened():
		return nil, endRelayed
	case refused == nil && ended == endMoved && !r.Forwarded:
		ended = endRelayed
	}
	if refused == nil && (q.position != "" || ended != endDraining) { // else after which to go on is not known
		end(out, ended, q.position)
	}
	return refused, ended
}

// moves is how often a stream follows an agent that is handed over, without events between; movedDelay is between two attempts.
const (
	moves      = 50
	movedDelay = 100 * time.Millisecond
)

// follow streams the events of one agent from the machine that has it now, and notes in q how far it got. If it ends as endMoved, or refused says that
// another machine has the agent, it may be called again.
func (s *Streams) follow(ctx context.Context, r Request, q *query, after uint64, out *rpc.Stream) (refused *rpc.Error, ended string) {
	leave, err := s.o.Agents.Enter(ctx, []string{r.Agent}, false)
	if err != nil {
		return nil, endOf(ctx, err)
	}
	defer func() { leave() }()
	if machine := s.owner(r); machine != "" {
		return s.relay(ctx, machine, r, q, out)
	}
	if err := s.o.Agents.CheckStart(r.By, r.Agent, false); err != nil {
		return new(rpc.ToError(err).With(http.StatusForbidden)), ""
	}
	sub, refused := s.subscribe(ctx, r, q, after)
	leave()
	leave = func() {}
	if refused != nil {
		return refused, ""
	}
	defer sub.Close()
	if q.toolOutput {
		sub.FollowOutput()
	}
	// A client whose connection breaks before the first event goes on after this id.
	if !out.Opened() && out.Send(fmt.Appendf(nil, ": open\nid: %d\n\n", sub.After())) != nil {
		return nil, ""
	}
	ended = endOf(ctx, pump(ctx, sub, *q, out))
	q.position = strconv.FormatUint(sub.After(), 10)
	if ended == endRemoved && sub.Moved() {
		if ended = endRelayed; s.o.Agents.Leaves(r.Agent) {
			ended = endMoved
		}
	}
	return nil, ended
}

// subscribe subscribes to the events of an agent that this machine has.
func (s *Streams) subscribe(ctx context.Context, r Request, q *query, after uint64) (sub *supervisor.Subscription, refused *rpc.Error) {
	a, err := s.o.Agents.Resolve(ctx, r.Agent)
	if err != nil {
		return nil, new(rpc.ToError(err))
	}
	if after > a.LastEvent() { // of an earlier agent of that name, unless a later machine has this one
		if err := s.o.Agents.Certain(r.Agent); err != nil {
			return nil, new(rpc.ToError(err))
		}
	}
	if q.position == "" {
		sub, err = a.SubscribeNew()
	} else {
		sub, err = a.Subscribe(after)
	}
	if errors.Is(err, supervisor.ErrNotFound) {
		err = rpc.AgentNotFound(r.Agent, rpc.ErrDestroyed)
	}
	if err != nil {
		return nil, new(rpc.ToError(err))
	}
	return sub, nil
}

// maxKept is how large a buffer is kept for the next batch: a large event is rare.
const maxKept = 128 << 10

// pump writes what the subscription gives, a batch at a time, until something
// fails: the client (its error), the subscription or ctx.
func pump(ctx context.Context, sub *supervisor.Subscription, q query, out *rpc.Stream) error {
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
			if q.wants(e.Type) {
				if id = id[:0]; e.Seq != 0 {
					id = strconv.AppendUint(id, e.Seq, 10)
				}
				buf = rpc.AppendEvent(buf, id, e.Type, e.Data)
			}
		}
		if err := out.SendOrBeat(buf); err != nil {
			return err
		}
	}
}

// nextEvents waits for events and keeps the stream alive meanwhile.
func nextEvents(ctx context.Context, sub *supervisor.Subscription, out *rpc.Stream) ([]supervisor.Event, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, out.Heartbeat)
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
