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

// Events is one connection to the events of an agent after number after: 0 for
// all that is kept, FromNow for only what comes. The sequence ends with an error
// when the connection does (io.ErrUnexpectedEOF where the server just left), and
// without one after an event "end". Follow connects again.
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
				err = fmt.Errorf("events of %s: %w", id, broken(ctx, err))
			}
			if !yield(event, err) || err != nil || event.Type == "end" {
				return
			}
		}
	}
}

// errOver says that a server ended a stream of events which goes on elsewhere.
var errOver = &ConnError{errors.New("the server ended the stream")}

// Follow is Events that go on where they were when a connection breaks, also with
// a later server, without an event twice or left out (an event gap says where the
// server has them no more). Before the first event FromNow is from each
// connection. It ends without an error after an event "end" for an agent that was
// removed, and with one when ctx does, when the server refuses, or when it is not
// to be had for as many tries in a row as any request is given.
func (c *Client) Follow(ctx context.Context, id string, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for progress, done := true, false; progress && !done; {
			progress = false
			err := c.again(ctx, true, func() (err error) {
				for event, broke := range c.Events(ctx, id, after) {
					if broke != nil {
						err = broke
						break
					}
					if event.Type == "end" && gjson.GetBytes(event.Data, "reason").Str != "removed" {
						err = errOver
						break
					}
					progress = true
					if event.Seq != 0 {
						after = event.Seq
					}
					if done = !yield(event, nil) || event.Type == "end"; done {
						return nil
					}
				}
				if _, again := later(err); again && progress {
					return nil // the tries are counted anew
				}
				return err
			})
			if err != nil {
				yield(Event{}, err)
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
	if err := finish(ctx, "events", response, nil); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("events of %s: %w", id, ErrNotNexus)
}

func isStream(r *http.Response) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "text/event-stream" && r.StatusCode == http.StatusOK
}

// Part is a piece of a streamed answer: Text, or Restart, or, as the last one,
// Result.
type Part struct {
	Text string
	// Restart says that the text before it is void: the agent crashed and the send
	// is tried again (on_crash), or the connection broke and the answer is told from
	// its start.
	Restart bool
	Result  *api.SendResult
}

// SendStream sends a message and gives the answer as it comes, from the goroutine
// that ranges over it; to leave earlier ends no turn. The texts joined, since the
// last restart, are the result's content. The last pair is the result or an error.
// It is tried again like Call.
func (c *Client) SendStream(ctx context.Context, id string, p api.SendParams) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		raw, repeatable, err := encode("send", p)
		if err != nil {
			yield(Part{}, err)
			return
		}
		a := answer{yield: yield}
		err = c.again(ctx, repeatable, func() error {
			response, err := c.post(ctx, AgentPath(id), "send", raw, "text/event-stream, application/json")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return a.read(ctx, response)
		})
		if err != nil {
			yield(Part{}, err)
		}
	}
}

// answer hands on a streamed answer, which may come in several connections.
type answer struct {
	yield func(Part, error) bool
	said  bool // there was text since the last restart
}

// read takes one connection's part of it. Nil is the end, also where the caller
// left.
func (a *answer) read(ctx context.Context, response *http.Response) error {
	if a.said && !a.restart() {
		return nil
	}
	if !isStream(response) {
		var result api.SendResult
		if err := finish(ctx, "send", response, &result); err != nil {
			return err
		}
		a.end(result)
		return nil
	}
	for event, err := range readEvents(response.Body) {
		if err != nil {
			return fmt.Errorf("call send: read the stream: %w", broken(ctx, err))
		}
		switch event.Type {
		case api.StreamData:
			var text string
			raw := gjson.GetBytes(event.Data, "params.chunk").Raw
			if err := json.Unmarshal([]byte(raw), &text); err != nil {
				return fmt.Errorf("call send: read a chunk: %w", err)
			}
			a.said = true
			if !a.yield(Part{Text: text}, nil) {
				return nil
			}
		case api.StreamRestart:
			if !a.restart() {
				return nil
			}
		case "response":
			var result api.SendResult
			if err := decode("send", event.Data, response.StatusCode, &result); err != nil {
				return err
			}
			a.end(result)
			return nil
		}
	}
	return nil
}

func (a *answer) restart() bool {
	a.said = false
	return a.yield(Part{Restart: true}, nil)
}

// end gives the result, and before it the text of a turn that had ended before and
// so had no stream.
func (a *answer) end(result api.SendResult) {
	if text := api.Value(result.Content); !a.said && text != "" && !a.yield(Part{Text: text}, nil) {
		return
	}
	a.yield(Part{Result: &result}, nil)
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
