package bridge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// streams reports whether the client wants the answer to c as a stream: a send
// with an id, by itself, that accepts text/event-stream.
func streams(r *http.Request, c *call) bool {
	if c.id == "" || c.request.Method != "send" || c.request.IsNotification() {
		return false
	}
	for _, accept := range r.Header.Values("Accept") {
		for media := range strings.SplitSeq(accept, ",") {
			media, _, _ = strings.Cut(media, ";")
			if strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// serveStream answers a send as it goes (SPEC §6.4): stream_start once it is
// accepted, stream_data for each piece of text, stream_end, and the response.
// A send that is not accepted is answered as any other.
func (s *Server) serveStream(x *exchange, c *call) {
	ctx, start := x.r.Context(), time.Now()
	turn, err := s.acceptStream(ctx, c)
	if err != nil {
		if response, status := s.failure(x, c, start, err); response != nil {
			s.answer(x, status, jsonrpc.AppendResponse(nil, *response))
		}
		return
	}
	t := &textStream{out: s.openStream(x), id: uuid.NewString(), heartbeat: s.o.Heartbeat}
	if t.notify(api.StreamStart, api.StreamStartParams{StreamID: t.id, TaskID: turn.ID()}) == nil {
		err = t.follow(ctx, s, c.id, turn)
	}
	if errors.Is(err, errSlowClient) {
		s.logCall(x, c, start, errClientLeft)
		return
	}
	outcome, err := turn.Wait(ctx)
	c.incarnation = outcome.Incarnation
	value, err := sendResult(outcome, err)
	var response *jsonrpc.Response
	if err == nil {
		response, err = result(c.request.ID, value)
	}
	if err == nil {
		s.logCall(x, c, start, nil)
	} else if response, _ = s.failure(x, c, start, err); response == nil {
		return
	}
	if t.notify(api.StreamEnd, api.StreamEndParams{StreamID: t.id, TotalChunks: t.chunks}) == nil {
		_ = t.out.send(appendEvent(nil, 0, "response", jsonrpc.AppendResponse(nil, *response)))
	}
}

func (s *Server) acceptStream(ctx context.Context, c *call) (*supervisor.Turn, error) {
	if err := s.admit(c); err != nil {
		return nil, err
	}
	p, err := params[api.SendParams](c)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, c, p)
}

// textStream writes the text of one turn as notifications.
type textStream struct {
	out       *stream
	id        string
	heartbeat time.Duration
	chunks    uint64
	afterTool bool // a tool was called since the last text
	buf       []byte
}

func (t *textStream) notify(method string, params any) error {
	line, err := jsonrpc.AppendNotification(nil, method, params)
	if err != nil {
		return err
	}
	return t.out.send(appendEvent(nil, 0, method, line))
}

// follow passes on the turn's text until the turn ends. It gives up early,
// without an error, where events are no longer to be had: the response has the
// whole text in any case. Errors are errSlowClient and that of ctx.
func (t *textStream) follow(ctx context.Context, s *Server, id string, turn *supervisor.Turn) error {
	seq, err := t.started(ctx, turn)
	if err != nil || seq == 0 {
		return err
	}
	a, err := s.o.Supervisor.Agent(id)
	if err != nil {
		return nil
	}
	sub, err := a.Subscribe(seq)
	if err != nil {
		return nil
	}
	defer sub.Close()
	for {
		events, err := nextEvents(ctx, sub, t.heartbeat, t.out)
		if errors.Is(err, errSlowClient) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			return nil
		}
		t.buf = t.buf[:0]
		ended := t.collect(events, turn.ID())
		if len(t.buf) > 0 {
			if err := t.out.send(t.buf); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// started waits for the turn to run and returns the number of its first event.
func (t *textStream) started(ctx context.Context, turn *supervisor.Turn) (seq uint64, err error) {
	for {
		wait, cancel := context.WithTimeout(ctx, t.heartbeat)
		seq, err := turn.Started(wait)
		cancel()
		if err == nil || ctx.Err() != nil {
			return seq, err
		}
		if err := t.out.beat(); err != nil {
			return 0, err
		}
	}
}

// collect adds the text of events to buf and reports whether the turn is over,
// or its text cannot be followed any more.
func (t *textStream) collect(events []supervisor.Event, turnID string) (ended bool) {
	for _, e := range events {
		switch e.Type {
		case "message_update":
			update := gjson.GetBytes(e.Data, "event")
			switch update.Get("type").Str {
			case "text_delta":
				t.chunk(update.Get("delta").Raw)
			case "toolcall_start":
				t.afterTool = t.chunks > 0
			}
		case "turn_end":
			if gjson.GetBytes(e.Data, "turn_id").String() == turnID {
				return true
			}
		case "gap":
			return true
		}
	}
	return false
}

// chunk adds a stream_data whose chunk is quoted, a JSON string as the child
// wrote it. Text before and after a tool call is set apart as in the result.
func (t *textStream) chunk(quoted string) {
	if len(quoted) <= len(`""`) {
		return
	}
	t.chunks++
	line := make([]byte, 0, len(quoted)+160)
	line = append(line, `{"jsonrpc":"2.0","method":"stream_data","params":{"stream_id":"`...)
	line = append(line, t.id...)
	line = append(line, `","chunk":"`...)
	if t.afterTool {
		t.afterTool = false
		line = append(line, `\n\n`...)
	}
	line = append(line, quoted[1:]...)
	line = append(line, `,"sequence":`...)
	line = strconv.AppendUint(line, t.chunks, 10)
	line = append(line, "}}"...)
	t.buf = appendEvent(t.buf, 0, api.StreamData, line)
}
