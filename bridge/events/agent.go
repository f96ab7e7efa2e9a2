package events

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"nexus.internal/bridge/rpc"
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
	if machine := s.owner(r); machine != "" {
		return s.relay(ctx, machine, r, q, to)
	}
	if err := s.o.Agents.CheckStart(r.By, r.Agent, false); err != nil {
		return new(rpc.ToError(err).With(http.StatusForbidden)), ""
	}
	a, err := s.o.Agents.Resolve(ctx, r.Agent)
	if err != nil {
		return new(rpc.ToError(err)), ""
	}
	if after > a.LastEvent() { // of an earlier agent of that name, unless a later machine has this one
		if err := s.o.Agents.Certain(r.Agent); err != nil {
			return new(rpc.ToError(err)), ""
		}
	}
	subscribe := func() (*supervisor.Subscription, error) { return a.Subscribe(after) }
	if q.position == "" {
		subscribe = a.SubscribeNew
	}
	sub, err := subscribe()
	if errors.Is(err, supervisor.ErrNotFound) {
		err = rpc.AgentNotFound(r.Agent, rpc.ErrDestroyed)
	}
	if err != nil {
		return new(rpc.ToError(err)), ""
	}
	defer sub.Close()
	if q.toolOutput {
		sub.FollowOutput()
	}
	out := rpc.NewStream(to, s.o.Heartbeat)
	if out.Send([]byte(": open\n\n")) != nil {
		return nil, ""
	}
	if ended = endOf(ctx, pump(ctx, sub, q, out)); ended == endRemoved && s.moved(r.Agent) {
		ended = endRelayed
	}
	end(out, ended, strconv.FormatUint(sub.After(), 10))
	return nil, ended
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
