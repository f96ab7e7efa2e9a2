package forward

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"nexus.internal/bridge/rpc"
)

const eventStream = "text/event-stream"

// blocks are server-sent events as they come, in the form that [rpc.AppendEvent] gives them.
type blocks struct {
	from   io.Reader
	body   io.Closer
	cancel context.CancelFunc // nil for none

	buf   []byte // what was read; Next has returned the first bytes
	taken int    // bytes that Next has returned
}

// maxBlock bounds one event, in bytes, and readSize what is read at once.
const (
	maxBlock = 16 << 20
	readSize = 16 << 10
)

var blockEnd = []byte("\n\n")

// Next implements [events.Blocks]. What it returns is good until the next call.
func (b *blocks) Next() ([]byte, error) {
	b.buf = append(b.buf[:0], b.buf[b.taken:]...)
	b.taken = 0
	for searched := 0; ; {
		if at := bytes.LastIndex(b.buf[searched:], blockEnd); at >= 0 {
			b.taken = searched + at + len(blockEnd)
			return b.buf[:b.taken], nil
		}
		searched = max(0, len(b.buf)-1)
		if len(b.buf) > maxBlock {
			return nil, fmt.Errorf("an event is longer than %d bytes", maxBlock)
		}
		b.buf = slices.Grow(b.buf, readSize)
		n, err := b.from.Read(b.buf[len(b.buf):cap(b.buf)])
		if b.buf = b.buf[:len(b.buf)+n]; n == 0 && err != nil {
			return nil, err
		}
	}
}

// Close implements [events.Blocks].
func (b *blocks) Close() {
	if b.cancel != nil {
		b.cancel()
	}
	b.body.Close()
}

// response begins the event that ends an answer, as [rpc.Stream.Answer] writes it.
var response = []byte("event: response\ndata: ")

// relay passes on the events of an answer as it goes, and returns its last one, the response.
func relay(from *blocks, out *rpc.Stream) ([]byte, error) {
	for {
		events, err := from.Next()
		if err != nil {
			if err == io.EOF { //nolint:errorlint // as a Reader has it
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		at := 0
		if !bytes.HasPrefix(events, response) {
			if at = bytes.Index(events, append(slices.Clone(blockEnd), response...)); at >= 0 {
				at += len(blockEnd)
			}
		}
		answered := at >= 0
		if !answered {
			at = len(events)
		}
		if at > 0 {
			if err := out.Send(events[:at]); err != nil {
				return nil, err
			}
		}
		if answered {
			return bytes.TrimSpace(events[at+len(response):]), nil
		}
	}
}
