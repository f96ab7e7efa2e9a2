package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// FromNow asks Events for what comes only.
const FromNow = math.MaxUint64

// Filter says which events are wanted (SPEC §6.4). Nil is all; a
// list without members is refused.
type Filter struct {
	Types  []string // of events, up to 256; gap, open and end come all the same
	Agents []string // their ids, up to 256; only for FollowAll
	// ToolOutput asks for what tools put out while they run, too: events message_update
	// without an ID, which are not kept.
	ToolOutput bool
}

// query is what the filter adds to after.
func (f Filter) query(after string) url.Values {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	for name, wanted := range map[string][]string{"types": f.Types, "agents": f.Agents} {
		if wanted != nil {
			query.Set(name, strings.Join(wanted, ","))
		}
	}
	if f.ToolOutput {
		query.Set("tool_output", "true")
	}
	return query
}

// Event is one event of a stream.
type Event struct {
	// ID is where the stream goes on after this event; "" for one that has none.
	ID string
	// Seq is ID where it is a number, the event's; 0 where it is none.
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
func (c *Client) Events(ctx context.Context, id string, after uint64, wanted Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for event, err := range c.eventsOf(id, after, wanted).once(ctx) {
			if !event.bare(err) && !yield(event, err) {
				return
			}
		}
	}
}

// Follow is Events that go on where they were when a connection breaks, also with
// a later server, without an event twice or left out (an event gap says where the
// server has them no more). FromNow is from the first connection on. It ends without an error after an event "end" whose reason is
// neither slow nor draining, and with one when ctx does, when the server refuses,
// or when it is not to be had for as many tries in a row as any request is given.
func (c *Client) Follow(ctx context.Context, id string, after uint64, wanted Filter) iter.Seq2[Event, error] {
	return c.eventsOf(id, after, wanted).follow(ctx)
}

// LastEvent is the number of the last event of an agent that there is; 0 if there is none. An agent without a process gets one.
func (c *Client) LastEvent(ctx context.Context, id string) (uint64, error) {
	for event, err := range c.eventsOf(id, FromNow, Filter{}).once(ctx) {
		if err != nil {
			return 0, err
		}
		return event.Seq, nil // the stream begins behind it
	}
	return 0, ctx.Err()
}

// FollowAll follows the events of all agents that are wanted, as Follow does: from
// the ID of an event on, "0" for all that is kept, "" for only what comes (SPEC §6.4).
func (c *Client) FollowAll(ctx context.Context, after string, wanted Filter) iter.Seq2[Event, error] {
	return eventStream{c, "/events", wanted.query(after)}.follow(ctx)
}

// eventStream is a stream of events, and where it begins.
type eventStream struct {
	c     *Client
	path  string
	query url.Values
}

func (c *Client) eventsOf(id string, after uint64, wanted Filter) eventStream {
	from := ""
	if after != FromNow {
		from = strconv.FormatUint(after, 10)
	}
	return eventStream{c, AgentPath(id) + "/events", wanted.query(from)}
}

// bare reports whether an event only says where the stream goes on, as the beginning of an agent's does.
func (e Event) bare(err error) bool { return err == nil && e.Data == nil }

// once gives the events of one connection, and bare ones.
func (s eventStream) once(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		response, err := s.open(ctx)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer response.Body.Close()
		body := s.c.hear(response.Body)
		defer body.Close()
		for event, err := range readEvents(body) {
			if err != nil {
				err = fmt.Errorf("get %s: %w", s.path, broken(ctx, err))
			}
			if !yield(event, err) || err != nil || event.Type == "end" {
				return
			}
		}
	}
}

// errOver says that a server ended a stream of events which goes on elsewhere.
var errOver = &ConnError{errors.New("the server ended the stream")}

// follow gives the events of one connection after another.
func (s eventStream) follow(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := eventStream{s.c, s.path, maps.Clone(s.query)} // it may be iterated over once more
		for progress, done := true, false; progress && !done; {
			progress = false
			err := s.c.again(ctx, true, func() (err error) {
				for event, broke := range s.once(ctx) {
					switch err = broke; {
					case draining(err): // the next server has the events
						err = &ConnError{errors.New(err.Error())}
					case err == nil && goesOn(event):
						err = errOver
					}
					if err != nil {
						break
					}
					progress = true
					if event.ID != "" {
						s.query.Set("after", event.ID)
					}
					if event.bare(nil) {
						continue
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

// goesOn reports whether the server ends a stream that can be had again.
func goesOn(event Event) bool {
	if event.Type != "end" {
		return false
	}
	one, err := event.Decode()
	end, ok := one.(protocol.StreamEnd)
	return err == nil && ok && (end.Reason == "slow" || end.Reason == "draining")
}

func (s eventStream) open(ctx context.Context) (*http.Response, error) {
	if err := checkPath(strings.TrimSuffix(s.path, "/events")); err != nil {
		return nil, err
	}
	target := s.c.URL() + s.path
	if len(s.query) > 0 {
		target += "?" + s.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", s.path, err)
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := s.c.do(r, s.path)
	if err != nil {
		return nil, err
	}
	if isStream(response) {
		return response, nil
	}
	defer response.Body.Close()
	if err := finish(ctx, s.path, response, nil); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("get %s: %w", s.path, ErrNotNexus)
}

func isStream(r *http.Response) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "text/event-stream" && r.StatusCode == http.StatusOK
}

var errLongLine = fmt.Errorf("a line is longer than %d bytes", maxEvent)

// readEvents reads a text/event-stream, bare events included. It ends with io.ErrUnexpectedEOF where
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
				if (event.Data != nil || event.ID != "") && !yield(event, nil) {
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
		e.ID = string(value)
		e.Seq, _ = strconv.ParseUint(e.ID, 10, 64)
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
