package rpc

import (
	"errors"
	"time"

	"nexus.internal/protocol/jsonrpc"
)

// Writer is an open stream of server-sent events. Its methods fail with ErrSlowClient.
type Writer interface {
	// Send writes events, framed by AppendEvent.
	Send(events []byte) error
	// Beat is a sign of life that means nothing.
	Beat() error
}

// ErrSlowClient says that the client did not take events in time, or left.
var ErrSlowClient = errors.New("the client does not read")

// Stream is the answer to one call as it goes. It belongs to the call's handler.
type Stream struct {
	open func() Writer
	w    Writer
	// Heartbeat is how long the stream may be quiet.
	Heartbeat time.Duration
}

// NewStream returns a Stream that open opens at its first notification.
func NewStream(open func() Writer, heartbeat time.Duration) *Stream {
	return &Stream{open: open, Heartbeat: heartbeat}
}

// Opened reports whether something was sent, so that the answer can be no other than an
// event.
func (s *Stream) Opened() bool { return s != nil && s.w != nil }

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
	if s.w == nil {
		s.w = s.open()
	}
	return s.w.Send(events)
}

// Beat is a sign of life. The error is ErrSlowClient.
func (s *Stream) Beat() error { return s.w.Beat() }

// Answer ends the stream with the response of its call. A client that left has no use for
// an error.
func (s *Stream) Answer(r jsonrpc.Response) {
	_ = s.Send(AppendEvent(nil, "", "response", jsonrpc.AppendResponse(nil, r)))
}
