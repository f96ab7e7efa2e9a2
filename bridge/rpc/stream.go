package rpc

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"nexus.internal/protocol/jsonrpc"
)

// Writer is a response of server-sent events, which begins with the first one.
type Writer interface {
	// Send writes events, framed by AppendEvent. The error is ErrSlowClient.
	Send(events []byte) error
}

// ErrSlowClient says that the client did not take events in time, or left.
var ErrSlowClient = errors.New("the client does not read")

// Stream is a stream of events, or the answer to one call as it goes. It belongs to the
// call's handler, or to one goroutine.
type Stream struct {
	w    Writer
	sent time.Time // when something was; zero before that
	// Heartbeat is how long the stream may be quiet.
	Heartbeat time.Duration
}

// NewStream returns a Stream to w.
func NewStream(w Writer, heartbeat time.Duration) *Stream {
	return &Stream{w: w, Heartbeat: heartbeat}
}

// Opened reports whether something was sent, so that the answer can be no other than an
// event.
func (s *Stream) Opened() bool { return s != nil && !s.sent.IsZero() }

// Notify sends one JSON-RPC notification. The error is ErrSlowClient.
func (s *Stream) Notify(method string, params any) error {
	line, err := jsonrpc.AppendNotification(nil, method, params)
	if err != nil {
		return err
	}
	return s.Send(AppendEvent(nil, "", method, line))
}

// Send writes events, framed by AppendEvent. The error is ErrSlowClient.
func (s *Stream) Send(events []byte) error {
	s.sent = time.Now()
	return s.w.Send(events)
}

// Beat is a sign of life that means nothing. The error is ErrSlowClient.
func (s *Stream) Beat() error { return s.Send([]byte(": heartbeat\n\n")) }

// SendOrBeat sends events; instead of none it gives a sign of life, if the stream was quiet
// for Heartbeat. The error is ErrSlowClient.
func (s *Stream) SendOrBeat(events []byte) error {
	switch {
	case len(events) > 0:
		return s.Send(events)
	case time.Since(s.sent) >= s.Heartbeat:
		return s.Beat()
	default:
		return nil
	}
}

// Answer ends the stream with the response of its call. A client that left has no use for
// an error.
func (s *Stream) Answer(r jsonrpc.Response) {
	_ = s.Send(AppendEvent(nil, "", "response", jsonrpc.AppendResponse(nil, r)))
}

// AppendEvent appends one event in the form of text/event-stream; id is "" for an
// event without one. data is one JSON value.
func AppendEvent[ID string | []byte](buf []byte, id ID, name string, data []byte) []byte {
	if len(id) > 0 {
		buf = append(buf, "id: "...)
		buf = append(buf, id...)
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
