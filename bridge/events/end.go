package events

import (
	"context"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Why a stream of events ends. The client is sent all but the last three.
const (
	endSlow     = "slow"     // it fell too far behind
	endRemoved  = "removed"  // the agent was destroyed
	endDraining = "draining" // the server is shutting down
	endRevoked  = "revoked"  // the key is not good any more
	endTooMany  = "crowded"  // of a stream of all agents: there are more than maxNames
	endUnread   = "unread"   // it did not take a batch in time, or broke the connection
	endLeft     = "left"     // it closed the connection
	endRelayed  = "relayed"  // the machine that has the agent ended it, or is not reached any more
	endMoved    = "moved"    // the agent was handed over to another machine: it goes on there. Clients do not see it
)

// endOf is why a stream ended with err.
func endOf(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, supervisor.ErrSlow):
		return endSlow
	case errors.Is(err, errTooManyAgents):
		return endTooMany
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

// end says on a stream why it ends, where a client still reads, and after which position, as
// JSON, another stream may go on.
func end(out *rpc.Stream, reason, after string) {
	e := protocol.StreamEnd{Reason: reason}
	switch reason {
	case endUnread, endLeft, endRelayed:
		return
	case endSlow, endDraining, endTooMany, endMoved:
		e.After = jsontext.Value(after)
	}
	_ = out.Send(rpc.AppendEvent(nil, "", e.Name(), protocol.EncodeEvent(e)))
}
