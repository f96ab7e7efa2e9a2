package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// streams reports whether the client wants the answer to c as a stream: one of a method
// that has one, with an id, by itself, that accepts text/event-stream.
func streams(r *http.Request, c *call) bool {
	m, _ := api.Find(c.request.Method)
	if m.Stream == nil || c.request.IsNotification() {
		return false
	}
	return takes(r.Header.Values("Accept"), "text/event-stream")
}

// serveStream answers a send as it goes (SPEC §6.4): stream_start once it is
// accepted, stream_data for each piece of text, stream_end, and the response.
// A send that is not accepted is answered as any other.
func (s *Server) serveStream(x *exchange, c *call) {
	ctx, start := s.beginSpan(x, c), time.Now()
	turn, onDisconnect, err := s.acceptStream(ctx, c)
	if err != nil {
		if response, status := s.failure(x, c, start, err); response != nil {
			s.answer(x, status, jsonrpc.AppendResponse(nil, *response))
		}
		return
	}
	t := &textStream{out: s.openStream(x), id: uuid.NewString()}
	err = t.notify(api.StreamStart, api.StreamStartParams{StreamID: t.id, TaskID: turn.ID()})
	if err == nil {
		err = t.follow(ctx, turn)
	}
	if errors.Is(err, errSlowClient) || gone(ctx) {
		s.left(ctx, c.id, turn, onDisconnect)
	}
	if errors.Is(err, errSlowClient) {
		s.recordCall(x, c, start, errClientLeft, nil)
		return
	}
	var response *jsonrpc.Response
	if err == nil || ctx.Err() != nil && !gone(ctx) { // it is answered as it ended even so
		response, err = ended(ctx, c, turn)
	}
	if err == nil {
		s.recordCall(x, c, start, nil, nil)
	} else if response, _ = s.failure(x, c, start, err); response == nil {
		return
	}
	if t.notify(api.StreamEnd, api.StreamEndParams{StreamID: t.id, TotalChunks: t.chunks}) == nil {
		_ = t.out.send(appendEvent(nil, "", "response", jsonrpc.AppendResponse(nil, *response)))
	}
}

// ended is the response for a turn that has ended.
func ended(ctx context.Context, c *call, turn *supervisor.Turn) (*jsonrpc.Response, error) {
	value, err := await(ctx, c, turn)
	if err != nil {
		return nil, err
	}
	return result(c.request.ID, value)
}

func (s *Server) acceptStream(ctx context.Context, c *call) (turn *supervisor.Turn, onDisconnect string, err error) {
	if err := s.admit(c); err != nil {
		return nil, "", err
	}
	p, err := api.Decode[api.SendParams](c.request.Params)
	if err != nil {
		return nil, "", err
	}
	c.request.Params = nil // while it waits its text is there once
	turn, err = s.accept(ctx, c, p)
	return turn, protocol.Value(p.OnDisconnect), err
}

// textStream writes the text of one turn as notifications. It reads the turn
// and not the agent's events: those leave out what a slow client has yet to
// read, a turn has all of its text.
type textStream struct {
	out       *stream
	id        string
	chunks    uint64
	line, buf []byte
}

func (t *textStream) notify(method string, params any) error {
	line, err := jsonrpc.AppendNotification(nil, method, params)
	if err != nil {
		return err
	}
	return t.out.send(appendEvent(nil, "", method, line))
}

// follow passes on the turn's text, from its start, until the turn has ended
// and all of it was sent: the chunks joined, of the last attempt, are the content
// of the response. A
// client that reads slowly gets fewer and larger ones. Errors are errSlowClient
// and that of ctx.
func (t *textStream) follow(ctx context.Context, turn *supervisor.Turn) error {
	for at := (supervisor.Place{}); ; {
		wait, cancel := context.WithTimeout(ctx, t.out.heartbeat)
		text, next, err := turn.Read(wait, at)
		cancel()
		if t.chunks > 0 && next.Attempt != at.Attempt {
			restart := api.StreamRestartParams{StreamID: t.id, Attempt: next.Attempt}
			if err := t.notify(api.StreamRestart, restart); err != nil {
				return err
			}
		}
		at = next
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			err = t.chunk(text)
		default:
			err = t.out.beat()
		}
		if err != nil {
			return err
		}
	}
}

// chunk sends a stream_data.
func (t *textStream) chunk(text string) (err error) {
	t.chunks++
	t.line = append(t.line[:0], `{"jsonrpc":"2.0","method":"stream_data","params":{"stream_id":"`...)
	t.line = append(t.line, t.id...)
	t.line = append(t.line, `","chunk":`...)
	if t.line, err = jsontext.AppendQuote(t.line, text); err != nil {
		return fmt.Errorf("encode a chunk: %w", err)
	}
	t.line = append(t.line, `,"sequence":`...)
	t.line = strconv.AppendUint(t.line, t.chunks, 10)
	t.line = append(t.line, "}}"...)
	t.buf = appendEvent(t.buf[:0], "", api.StreamData, t.line)
	return t.out.send(t.buf)
}
