package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"mime"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
)

// FromNow asks Events for what comes only.
const FromNow = math.MaxUint64

// Event is one event of a stream.
type Event struct {
	// Seq is the event's number; 0 for one that has none.
	Seq uint64
	// Type is the event's name: that of the child's frame, agent_state,
	// turn_start, turn_end, gap, or end (the server ends the stream).
	Type string
	// Data is a JSON object on one line.
	Data jsontext.Value
}

// Events follows the events of an agent after number after: 0 for all that is
// kept, FromNow for only what comes. The sequence ends with an error when the
// connection does (io.ErrUnexpectedEOF where the server just left), and
// without one after an event "end". It does not connect again: the caller
// knows the last number it saw.
func (c *Client) Events(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		response, err := c.openEvents(ctx, id, after)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer response.Body.Close()
		for event, err := range readEvents(response.Body) {
			if err != nil {
				err = fmt.Errorf("events of %s: %w", id, err)
			}
			if !yield(event, err) || err != nil || event.Type == "end" {
				return
			}
		}
	}
}

func (c *Client) openEvents(ctx context.Context, id string, after uint64) (*http.Response, error) {
	url := c.base + AgentPath(id) + "/events"
	if after != FromNow {
		url += "?after=" + strconv.FormatUint(after, 10)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("events of %s: %w", id, err)
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := c.do(r, "events")
	if err != nil {
		return nil, err
	}
	if isStream(response) {
		return response, nil
	}
	defer response.Body.Close()
	if err := finish("events", response, nil); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("events of %s: %w", id, ErrNotNexus)
}

func isStream(r *http.Response) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "text/event-stream" && r.StatusCode == http.StatusOK
}

// SendStream sends a message and hands on the answer as it comes. chunk and
// restart are called in order, by the goroutine that called. restart, which may be
// nil, says that the agent crashed and the answer begins anew. The chunks joined,
// since the last restart, are the result's content. For a turn that had ended
// before there may be none, so a caller that shows them compares the two at the
// end.
func (c *Client) SendStream(ctx context.Context, id string, p api.SendParams, chunk func(string), restart func()) (result api.SendResult, err error) {
	response, err := c.post(ctx, AgentPath(id), "send", p, "text/event-stream, application/json")
	if err != nil {
		return result, err
	}
	defer response.Body.Close()
	if !isStream(response) {
		return result, finish("send", response, &result)
	}
	for event, err := range readEvents(response.Body) {
		if err != nil {
			return result, fmt.Errorf("call send: read the stream: %w", err)
		}
		switch event.Type {
		case api.StreamData:
			var text string
			raw := gjson.GetBytes(event.Data, "params.chunk").Raw
			if err := json.Unmarshal([]byte(raw), &text); err != nil {
				return result, fmt.Errorf("call send: read a chunk: %w", err)
			}
			chunk(text)
		case api.StreamRestart:
			if restart != nil {
				restart()
			}
		case "response":
			return result, decode("send", event.Data, response.StatusCode, &result)
		}
	}
	return result, fmt.Errorf("call send: read the stream: %w", io.ErrUnexpectedEOF)
}

var errLongLine = fmt.Errorf("a line is longer than %d bytes", maxEvent)

// readEvents reads a text/event-stream. It ends with io.ErrUnexpectedEOF where
// the stream does.
func readEvents(body io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReaderSize(body, 64<<10)
		var event Event
		for {
			line, err := readLine(lines)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			if len(line) == 0 {
				if event.Data != nil && !yield(event, nil) {
					return
				}
				event = Event{}
				continue
			}
			event.field(line)
		}
	}
}

// field takes one line of an event: a comment, or NAME: VALUE.
func (e *Event) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		if seq, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			e.Seq = seq
		}
	case "event":
		e.Type = string(value)
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
	}
}

// readLine returns a line without its end. It is good until r is read again.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(long)+len(part) > maxEvent {
			return nil, errLongLine
		}
		if err == nil && long == nil {
			return bytes.TrimSuffix(part[:len(part)-1], []byte("\r")), nil
		}
		long = append(long, part...)
		if err == nil {
			return bytes.TrimSuffix(long[:len(long)-1], []byte("\r")), nil
		}
	}
}
