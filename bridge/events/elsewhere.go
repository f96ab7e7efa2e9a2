package events

import (
	"bytes"
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

// Machine is another machine of a cluster.
type Machine struct {
	Name  string
	State string // up, lost or left, as list_nodes says
}

// Elsewhere follows the events of agents that other machines of a cluster have. It is safe for concurrent use.
type Elsewhere interface {
	// Self is the name of this machine.
	Self() string
	// Others are the other machines that are known here.
	Others() []Machine
	// Owner is the machine that has an agent, "" for this one; known is false if none is known to.
	Owner(agent string) (machine string, known bool)
	// Events asks a machine for what r asks for, of an agent or of all that it has; ctx ends the answer, too. An error that the machine answers with is a
	// *rpc.RemoteError.
	Events(ctx context.Context, machine string, r Request) (Blocks, error)
}

// Blocks is an answer of server-sent events.
type Blocks interface {
	// Next waits for events, and returns one or more of them, each whole. io.EOF follows the last one.
	Next() ([]byte, error)
	Close()
}

// owner is the other machine that is to answer a request; "" for this one.
func (s *Streams) owner(r Request) string {
	if s.o.Elsewhere == nil || r.Forwarded {
		return ""
	}
	machine, _ := s.o.Elsewhere.Owner(r.Agent)
	return machine
}

// moved reports whether another machine has an agent that was here.
func (s *Streams) moved(agent string) bool {
	if s.o.Elsewhere == nil {
		return false
	}
	machine, known := s.o.Elsewhere.Owner(agent)
	return known && machine != ""
}

// claimed reports whether a machine is known to have an agent.
func (s *Streams) claimed(agent string) bool {
	if s.o.Elsewhere == nil {
		return false
	}
	_, known := s.o.Elsewhere.Owner(agent)
	return known
}

// relay passes on what another machine answers, until that ends, and notes in q how far it got. Where the machine is not reached any more, the stream ends
// without an event end, as one of a server that is gone.
func (s *Streams) relay(ctx context.Context, machine string, r Request, q *query, out *rpc.Stream) (refused *rpc.Error, ended string) {
	if out.Opened() { // it goes on at another machine
		r.LastEventID = q.position
	}
	from, err := s.o.Elsewhere.Events(ctx, machine, r)
	if err != nil {
		return new(rpc.ToError(err)), ""
	}
	defer from.Close()
	for {
		events, err := from.Next()
		if err == nil {
			rest, at, moved := cutMoved(events)
			q.position = lastID(rest, q.position)
			if len(rest) > 0 {
				err = out.Send(rest)
			}
			if moved && err == nil {
				q.position = at
				return nil, endMoved
			}
		}
		switch {
		case ctx.Err() != nil: // the server, the key or the client has ended
			return nil, endOf(ctx, ctx.Err())
		case errors.Is(err, rpc.ErrSlowClient):
			return nil, endUnread
		case err != nil:
			return nil, endRelayed
		}
	}
}

// cutMoved takes the event from the end of others by which a machine says that it has handed over the agent, and after which event the next one goes on.
func cutMoved(events []byte) (rest []byte, after string, moved bool) {
	begin := []byte("event: " + protocol.StreamEnd{}.Name() + "\ndata: ")
	at := bytes.LastIndex(events, begin)
	if at < 0 || at > 0 && !bytes.HasSuffix(events[:at], []byte("\n\n")) {
		return events, "", false
	}
	var end protocol.StreamEnd
	if err := json.Unmarshal(bytes.TrimSpace(events[at+len(begin):]), &end); err != nil || end.Reason != endMoved {
		return events, "", false
	}
	return events[:at], string(end.After), true
}

// lastID is the id of the last event that has one, else before.
func lastID(events []byte, before string) string {
	const field = "\nid: "
	at := bytes.LastIndex(events, []byte(field))
	if at >= 0 {
		at++
	} else if !bytes.HasPrefix(events, []byte(field[1:])) {
		return before
	} else {
		at = 0
	}
	id, _, _ := bytes.Cut(events[at+len(field)-1:], []byte("\n"))
	return string(id)
}
