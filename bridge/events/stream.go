package events

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// stream is an open stream that knows how long it was quiet.
type stream struct {
	rpc.Writer
	heartbeat time.Duration // between signs of life
	sent      time.Time     // when something was
}

func newStream(w rpc.Writer, heartbeat time.Duration) *stream {
	return &stream{Writer: w, heartbeat: heartbeat, sent: time.Now()}
}

// Send writes events. The error is rpc.ErrSlowClient.
func (s *stream) Send(events []byte) error {
	s.sent = time.Now()
	return s.Writer.Send(events)
}

// Beat is a sign of life that means nothing. The error is rpc.ErrSlowClient.
func (s *stream) Beat() error {
	s.sent = time.Now()
	return s.Writer.Beat()
}

// sendOrBeat sends events; instead of none it gives a sign of life, if it is time for
// that.
func (s *stream) sendOrBeat(events []byte) error {
	switch {
	case len(events) > 0:
		return s.Send(events)
	case time.Since(s.sent) >= s.heartbeat:
		return s.Beat()
	default:
		return nil
	}
}

// Why a stream of events ends. The client is sent all but the last two.
const (
	endSlow     = "slow"     // it fell too far behind
	endRemoved  = "removed"  // the agent was destroyed
	endDraining = "draining" // the server is shutting down
	endRevoked  = "revoked"  // the key is not good any more
	endTooMany  = "crowded"  // of a stream of all agents: there are more than maxNames
	endUnread   = "unread"   // it did not take a batch in time, or broke the connection
	endLeft     = "left"     // it closed the connection
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

// encodeEvent writes an event of ours, whose texts are plain.
func encodeEvent(e protocol.Event) []byte {
	data, err := protocol.AppendEvent(nil, e)
	if err != nil {
		panic("events: " + err.Error())
	}
	return data
}

// end says why the stream ends, where a client still reads, and after which position, as
// JSON, another stream may go on.
func (s *stream) end(reason, after string) {
	e := protocol.StreamEnd{Reason: reason}
	switch reason {
	case endUnread, endLeft:
		return
	case endSlow, endDraining, endTooMany:
		e.After = jsontext.Value(after)
	}
	_ = s.Send(rpc.AppendEvent(nil, "", e.Name(), encodeEvent(e)))
}
