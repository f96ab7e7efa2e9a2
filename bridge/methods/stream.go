package methods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/supervisor"
)

// streamTurn answers a send that was accepted as it goes (SPEC §6.4): stream_start,
// stream_data for each piece of text, stream_end.
func (m *turnMethods) streamTurn(ctx context.Context, c *rpc.Call, turn *supervisor.Turn, out *rpc.Stream) (api.SendResult, error) {
	t := &textStream{out: out, id: uuid.NewString()}
	err := out.Notify(api.StreamStart, api.StreamStartParams{StreamID: t.id, TaskID: turn.ID()})
	if err == nil {
		err = t.follow(ctx, turn)
	}
	if errors.Is(err, rpc.ErrSlowClient) {
		return api.SendResult{}, err
	}
	sent, err := await(ctx, c, turn)
	_ = out.Notify(api.StreamEnd, api.StreamEndParams{StreamID: t.id, TotalChunks: t.chunks}) // the answer fails as well
	return sent, err
}

// textStream writes the text of one turn as notifications. It reads the turn
// and not the agent's events: those leave out what a slow client has yet to
// read, a turn has all of its text.
type textStream struct {
	out       *rpc.Stream
	id        string
	chunks    uint64
	line, buf []byte
}

// follow passes on the turn's text, from its start, until the turn has ended
// and all of it was sent: the chunks joined, of the last attempt, are the content
// of the response. A
// client that reads slowly gets fewer and larger ones. Errors are rpc.ErrSlowClient
// and that of ctx.
func (t *textStream) follow(ctx context.Context, turn *supervisor.Turn) error {
	for at := (supervisor.Place{}); ; {
		wait, cancel := context.WithTimeout(ctx, t.out.Heartbeat)
		text, next, err := turn.Read(wait, at)
		cancel()
		if t.chunks > 0 && next.Attempt != at.Attempt {
			restart := api.StreamRestartParams{StreamID: t.id, Attempt: next.Attempt}
			if err := t.out.Notify(api.StreamRestart, restart); err != nil {
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
			err = t.out.Beat()
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
	t.buf = rpc.AppendEvent(t.buf[:0], "", api.StreamData, t.line)
	return t.out.Send(t.buf)
}
