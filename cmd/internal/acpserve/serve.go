package acpserve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

const (
	// maxLine bounds a line that is read, in bytes: a prompt with images.
	maxLine = 16 << 20
	// maxCalls is how many requests of the editor run at once; one more is refused.
	maxCalls = 64
	// endPatience bounds the wait for what still runs when stdin has ended, if nobody reads stdout.
	endPatience = 2 * time.Second
)

// server answers an editor.
type server struct {
	app     *cli.App
	o       options
	finding sync.Mutex // held while the server is looked for: two would be started
	peer    *peer
	calls   sync.WaitGroup // the requests that run
	slots   chan struct{}  // an item for each of them

	mu       sync.Mutex // guards what follows
	sessions map[string]*session
	running  map[jsonrpc.ID]context.CancelFunc // the requests that run
	shows    shows
}

// shows says which updates the editor can show that not all can.
type shows struct{ notices, compaction bool }

// serve speaks until stdin ends, and then cancels what runs.
func serve(ctx context.Context, app *cli.App, o options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{
		app: app, o: o, slots: make(chan struct{}, maxCalls), sessions: map[string]*session{}, running: map[jsonrpc.ID]context.CancelFunc{},
		peer: &peer{out: frame.NewWriter(app.Stdout), end: cancel, asked: map[jsonrpc.ID]chan<- jsonrpc.Response{}},
	}
	err := s.read(ctx, frame.NewLimitedReader(app.Stdin, maxLine))
	cause := context.Cause(ctx)
	cancel(nil)
	ended := make(chan struct{})
	go func() { // ends with the calls, or with the program if one of them writes to a stdout that nobody reads
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endPatience):
	}
	return cmp.Or(s.peer.unheard(), cause, err) // what was answered after the end of stdin may have had no reader, too
}

// read takes line after line until there are no more.
func (s *server) read(ctx context.Context, lines *frame.Reader) error {
	for ctx.Err() == nil {
		line, err := lines.Next()
		if tooLarge, ok := errors.AsType[*frame.TooLargeError](err); ok {
			s.peer.answer(jsonrpc.NullID, nil, &requestError{jsonrpc.CodeInvalidRequest, fmt.Sprintf("a line has more than %d bytes", tooLarge.Limit)})
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read stdin: %w", err)
		}
		s.take(ctx, bytes.Clone(line))
	}
	return nil
}

// take takes a line, and returns before a request of it is answered.
func (s *server) take(ctx context.Context, line []byte) {
	if response, err := jsonrpc.DecodeResponse(line); err == nil {
		s.peer.take(response)
		return
	}
	body := jsonrpc.DecodeBody(line, 1)
	item := body.Items[0]
	switch {
	case body.Batch:
		s.peer.answer(jsonrpc.NullID, nil, &requestError{jsonrpc.CodeInvalidRequest, "the protocol has no batches: send each message on a line of its own"})
	case item.Refused != nil:
		_ = s.peer.write(jsonrpc.AppendResponse(nil, *item.Refused)) // an error has ended the program
	case item.Request.IsNotification():
		s.notified(item.Request)
	case item.Request.Positional:
		s.peer.answer(item.Request.ID, nil, invalid("params must be an object"))
	default:
		s.start(ctx, item.Request)
	}
}

// notified takes a notification. Those that are not known are ignored, as the protocol wants it.
func (s *server) notified(r jsonrpc.Request) {
	switch r.Method {
	case "session/cancel":
		if session := s.session(gjson.GetBytes(r.Params, "sessionId").Str); session != nil {
			session.cancel()
		}
	case "$/cancel_request":
		id := gjson.GetBytes(r.Params, "requestId").Raw
		s.mu.Lock()
		defer s.mu.Unlock()
		for running, cancel := range s.running {
			if running.String() == id {
				cancel()
			}
		}
	}
}

// call is a request of the editor.
type call struct {
	method string
	params jsontext.Value
	// turn is that of session/prompt, known to its session before the next line is read: a
	// cancel may follow at once. Nil for another method, and where there is no such session.
	turn *turn
}

// start carries out a request.
func (s *server) start(ctx context.Context, r jsonrpc.Request) {
	select {
	case s.slots <- struct{}{}:
	default:
		s.peer.answer(r.ID, nil, &requestError{jsonrpc.CodeInternalError, fmt.Sprintf("%d requests run already: wait for one of them", maxCalls)})
		return
	}
	c := call{method: r.Method, params: r.Params}
	if c.params == nil || c.params.Kind() == 'n' {
		c.params = jsontext.Value("{}")
	}
	if session := s.session(gjson.GetBytes(c.params, "sessionId").Str); session != nil && c.method == "session/prompt" {
		c.turn = session.begin()
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.running[r.ID] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		result, err := s.call(ctx, c)
		if c.turn != nil {
			c.turn.end()
		}
		s.mu.Lock()
		delete(s.running, r.ID)
		s.mu.Unlock()
		cancel()
		s.peer.answer(r.ID, result, err)
		<-s.slots
	})
}

// call carries out a method.
func (s *server) call(ctx context.Context, c call) (any, error) {
	switch c.method {
	case "initialize":
		return with(c, s.initialize)
	case "authenticate":
		return none{}, nil // nothing is asked for
	case "session/list":
		return on(ctx, s, c, s.list)
	case "session/new":
		return on(ctx, s, c, s.create)
	case "session/load":
		return on(ctx, s, c, s.load)
	case "session/resume":
		return on(ctx, s, c, s.resume)
	case "session/close":
		return on(ctx, s, c, s.close)
	case "session/delete":
		return on(ctx, s, c, s.delete)
	case "session/set_mode":
		return on(ctx, s, c, s.setMode)
	case "session/set_config_option":
		return on(ctx, s, c, s.setOption)
	case "session/prompt":
		return on(ctx, s, c, func(ctx context.Context, to *client.Client, p promptParams) (promptResult, error) {
			return s.prompt(ctx, to, c.turn, p)
		})
	}
	return nil, &requestError{jsonrpc.CodeMethodNotFound, fmt.Sprintf("there is no method %.64q here", c.method)}
}

// with reads the parameters of a method.
func with[P, R any](c call, do func(p P) (R, error)) (any, error) {
	var p P
	if err := strict.Fill(c.params, &p, strict.IgnoreUnknown); err != nil {
		return nil, err
	}
	return do(p)
}

// on is with for a method that calls the server.
func on[P, R any](ctx context.Context, s *server, c call, do func(ctx context.Context, to *client.Client, p P) (R, error)) (any, error) {
	return with(c, func(p P) (result R, err error) {
		to, err := s.connect(ctx)
		if err != nil {
			return result, err
		}
		defer to.Close()
		return do(ctx, to, p)
	})
}

// connect finds the server, or starts one. The caller must close the client.
func (s *server) connect(ctx context.Context) (*client.Client, error) {
	s.finding.Lock()
	defer s.finding.Unlock()
	return s.app.Reach(ctx, true)
}

// initialize says what there is. The server is not looked for yet.
func (s *server) initialize(p initializeParams) (initializeResult, error) {
	if c := p.ClientCapabilities; c != nil && c.Session != nil {
		s.mu.Lock()
		s.shows = shows{notices: c.Session.Notices.Kind() == '{', compaction: c.Session.Compaction.Kind() == '{'}
		s.mu.Unlock()
	}
	return initializeResult{
		ProtocolVersion: protocolVersion,
		AgentCapabilities: capabilities{
			LoadSession:        true,
			PromptCapabilities: promptCapabilities{Image: true, EmbeddedContext: true},
		},
		AgentInfo:   agentInfo{"nexus", "nexus", s.app.Version},
		AuthMethods: []struct{}{},
	}, nil
}

// session is an open one; nil for another.
func (s *server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}
