package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"nexus.internal/supervisor"
)

// serveEvents streams the events of an agent (SPEC §6.4): those after the
// number that the client names, else only what comes.
func (s *Server) serveEvents(x *exchange, id, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if s.requests.isClosed() {
		s.refuse(x, draining)
		return
	}
	after, wrong := position(x.r.Header, query)
	if wrong != "" {
		s.refuse(x, badEventID(wrong))
		return
	}
	ctx := x.r.Context()
	a, err := s.agent(ctx, id)
	if err != nil {
		s.refuse(x, explain(err))
		return
	}
	sub, err := a.Subscribe(after)
	if err != nil {
		s.refuse(x, explain(named(id, err)))
		return
	}
	defer sub.Close()
	out := s.openStream(x)
	if out.send([]byte(": open\n\n")) != nil {
		return
	}
	reason := endOf(ctx, pump(ctx, sub, s.o.Heartbeat, out))
	out.end(reason, sub.After())
	s.logStream(x, id, reason)
}

// position is the number of the last event that the client has seen. The
// header wins over the query: a browser's EventSource repeats the URL and says
// in the header how far it got. wrong names what holds no number, "" if all is
// well.
func position(h http.Header, query string) (after uint64, wrong string) {
	const header, parameter = "header Last-Event-ID", "parameter after"
	text, source := h.Get("Last-Event-ID"), header
	if text == "" {
		values, err := url.ParseQuery(query)
		if err != nil {
			return 0, parameter
		}
		text, source = values.Get("after"), parameter
	}
	if text == "" {
		return math.MaxUint64, ""
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, source
	}
	return after, ""
}

// pump writes what the subscription gives, a batch at a time, until something
// fails: the client (its error), the subscription or ctx.
func pump(ctx context.Context, sub *supervisor.Subscription, heartbeat time.Duration, out *stream) error {
	var buf []byte
	for {
		events, err := nextEvents(ctx, sub, heartbeat, out)
		if err != nil {
			return err
		}
		buf = buf[:0]
		for _, e := range events {
			buf = appendEvent(buf, e.Seq, e.Type, e.Data)
		}
		if err := out.send(buf); err != nil {
			return err
		}
	}
}

// nextEvents waits for events and keeps the stream alive meanwhile.
func nextEvents(ctx context.Context, sub *supervisor.Subscription, heartbeat time.Duration, out *stream) ([]supervisor.Event, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, heartbeat)
		events, err := sub.Next(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return events, err
		}
		if err := out.beat(); err != nil {
			return nil, err
		}
	}
}

// appendEvent appends one event in the form of text/event-stream; seq 0 stands
// for an event without a number. data is one JSON value.
func appendEvent(buf []byte, seq uint64, name string, data []byte) []byte {
	if seq != 0 {
		buf = append(buf, "id: "...)
		buf = strconv.AppendUint(buf, seq, 10)
		buf = append(buf, '\n')
	}
	buf = append(buf, "event: "...)
	buf = append(buf, oneLine(name)...)
	buf = append(buf, "\ndata: "...)
	start := len(buf)
	buf = append(buf, data...)
	if bytes.IndexByte(data, '\r') >= 0 || bytes.IndexByte(data, '\n') >= 0 {
		// Between JSON's tokens a line break is white space, within one it
		// cannot be; in an event stream it would end the line.
		for i, b := range buf[start:] {
			if b == '\r' || b == '\n' {
				buf[start+i] = ' '
			}
		}
	}
	return append(buf, "\n\n"...)
}

// oneLine is the name of an event, or "unknown" if it would break the line.
func oneLine(name string) string {
	if name == "" || strings.ContainsAny(name, "\r\n\x00") {
		return "unknown"
	}
	return name
}

// stream is an open text/event-stream response.
type stream struct {
	x       *exchange
	timeout time.Duration // for one batch
}

// errSlowClient says that the client did not take a batch in time, or left.
var errSlowClient = errors.New("the client does not read")

func (s *Server) openStream(x *exchange) *stream {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	return &stream{x: x, timeout: s.o.WriteTimeout}
}

// send writes a batch and flushes it. A client that does not take it within
// the timeout loses its connection.
func (st *stream) send(batch []byte) error {
	_ = st.x.rc.SetWriteDeadline(time.Now().Add(st.timeout))
	if _, err := st.x.w.Write(batch); err != nil {
		return errSlowClient
	}
	if err := st.x.rc.Flush(); err != nil {
		return errSlowClient
	}
	return nil
}

// beat is a sign of life that means nothing.
func (st *stream) beat() error { return st.send([]byte(": heartbeat\n\n")) }

// Why a stream of events ends. The first four are said to the client.
const (
	endSlow     = "slow"     // it fell too far behind
	endRemoved  = "removed"  // the agent was destroyed
	endDraining = "draining" // the server is shutting down
	endRevoked  = "revoked"  // the key is not good any more
	endUnread   = "unread"   // it did not take a batch in time, or broke the connection
	endLeft     = "left"     // it closed the connection
)

func endOf(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, supervisor.ErrSlow):
		return endSlow
	case errors.Is(err, io.EOF):
		return endRemoved
	case errors.Is(context.Cause(ctx), supervisor.ErrDraining):
		return endDraining
	case errors.Is(context.Cause(ctx), errKeyEnded):
		return endRevoked
	case errors.Is(err, errSlowClient):
		return endUnread
	default:
		return endLeft
	}
}

// end says why the stream ends, where there is somebody to tell, and after which
// number another one may go on.
func (st *stream) end(reason string, after uint64) {
	data := []byte(`{"type":"end","reason":"` + reason + `"`)
	switch reason {
	case endUnread, endLeft:
		return
	case endSlow, endDraining:
		data = strconv.AppendUint(append(data, `,"after":`...), after, 10)
	}
	_ = st.send(appendEvent(nil, 0, "end", append(data, '}')))
}
