package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/egress"
	"nexus.internal/protocol/eventstream"
)

const (
	// streamTimeout is how long a server may take to open a stream for what it
	// says of itself. One that does not has none.
	streamTimeout = 3 * time.Second
	// closeTimeout is how long the answer to the end of a session is waited for.
	closeTimeout = 300 * time.Millisecond
	// maxResume is the longest pause before a stream that broke is asked for anew.
	maxResume = time.Minute

	sessionHeader = "Mcp-Session-Id"
)

var errForgotten = errors.New("it does not know the session any more")

// reach is where servers may be: anywhere but at the addresses of a cloud's metadata, which a
// project's file could name, or a name stand for.
var reach = egress.Rule{Private: true}

// newBaseTransport is what servers are reached through.
func newBaseTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            reach.Dialer().DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        90 * time.Second,
	}
}

// httpTransport is the connection to a server by streamable HTTP (MCP 2025-11-25, Transports). A
// request is a POST, which the server answers by a message or by a stream of events with the
// answer among them. What it says of itself comes on a stream that a GET opens.
type httpTransport struct {
	http    *http.Client
	url     string
	headers map[string]string
	client  *client
	end     context.CancelCauseFunc // of the session, for what the server did

	ctx    context.Context //nolint:containedctx // of the server's stream; ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // that stream, and the end of the session

	mu      sync.Mutex // guards all below
	session string     // as the server calls it; "" for none
	version string     // of the protocol; "" before that is agreed upon
}

// newHTTPTransport makes one that follows no redirect, which would take the headers along. Its
// wait must be called.
func newHTTPTransport(base http.RoundTripper, server Server, c *client, end context.CancelCauseFunc) *httpTransport {
	t := &httpTransport{
		http: &http.Client{
			Transport:     base,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		url: server.URL, headers: server.Headers, client: c, end: end,
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// do makes a request. after is the last event of a stream that is asked for anew, or "".
func (t *httpTransport) do(ctx context.Context, method string, message []byte, after string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.url, bytes.NewReader(message))
	if err != nil {
		return nil, &undeliveredError{err}
	}
	t.mu.Lock()
	session, version := t.session, t.version
	t.mu.Unlock()
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if method == http.MethodPost {
		set("Content-Type", "application/json")
		set("Accept", "application/json, text/event-stream")
	} else {
		set("Accept", "text/event-stream")
	}
	set(sessionHeader, session)
	set("Mcp-Protocol-Version", version)
	set("Last-Event-Id", after)
	for name, value := range t.headers {
		req.Header.Set(name, value)
	}
	resp, err := t.http.Do(req)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return nil, &undeliveredError{err}
	}
	return resp, err
}

// send implements [transport]. Of a request it returns when its answer has been received.
func (t *httpTransport) send(ctx context.Context, id int64, message []byte) error {
	resp, err := t.do(ctx, http.MethodPost, message, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := t.accept(resp); err != nil || id == 0 {
		return err
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/json":
		data, err := io.ReadAll(&boundedBody{Reader: resp.Body, left: maxMessage})
		if err == nil {
			err = t.receive(data)
		}
		if err == nil && t.client.waits(id) {
			err = errNoAnswer
		}
		return err
	case "text/event-stream":
		return (&stream{transport: t, id: id}).follow(ctx, resp.Body)
	default:
		return fmt.Errorf("it answered with %.60q, which is neither JSON nor a stream of events", kind)
	}
}

// accept looks at the head of an answer: an error is a request that was not taken.
func (t *httpTransport) accept(resp *http.Response) error {
	t.mu.Lock()
	known := t.session
	if known == "" && resp.StatusCode/100 == 2 {
		t.session = resp.Header.Get(sessionHeader)
	}
	t.mu.Unlock()
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusNotFound && known != "":
		t.mu.Lock()
		t.session = ""
		t.mu.Unlock()
		return &undeliveredError{errForgotten}
	}
	var m incoming
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil && json.Unmarshal(data, &m, lenient) == nil && m.Error != nil && m.Error.Message != "" {
		return m.Error
	}
	return fmt.Errorf("HTTP status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// receive passes on a message. What is none ends the session.
func (t *httpTransport) receive(data []byte) error {
	err := t.client.receive(data)
	if err != nil {
		t.end(err)
	}
	return err
}

// begin implements [transport]. It opens the server's stream: a server that has none says so, or
// nothing.
func (t *httpTransport) begin(ctx context.Context, version string, initialized []byte) error {
	t.mu.Lock()
	t.version = version
	t.mu.Unlock()
	if err := t.send(ctx, 0, initialized); err != nil {
		return err
	}
	s := &stream{transport: t}
	if body, err := s.open(t.ctx); err == nil {
		t.tasks.Go(func() { _ = s.follow(t.ctx, body) }) // without it, changes are not told
	}
	return nil
}

// close implements [transport]. It ends the session at the server, too.
func (t *httpTransport) close() {
	t.cancel()
	t.mu.Lock()
	known := t.session != ""
	t.mu.Unlock()
	if !known {
		return
	}
	t.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if resp, err := t.do(ctx, http.MethodDelete, nil, ""); err == nil {
			resp.Body.Close()
		}
	})
}

// wait returns when nothing of the connection is left. close must have been called.
func (t *httpTransport) wait() { t.tasks.Wait() }

// stream is a stream of events of a server.
type stream struct {
	transport *httpTransport
	id        int64         // of the request that is answered there; 0 for the server's own
	last      string        // the id of the last event; "" if it has none
	pause     time.Duration // that the server asks for before the stream is asked for anew
}

// open asks for the server's own stream, or for one that broke. Its header must be there in
// streamTimeout. The body is to be closed.
func (s *stream) open(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(streamTimeout, cancel)
	resp, err := s.transport.do(ctx, http.MethodGet, nil, s.last)
	if err != nil || !late.Stop() {
		cancel()
		if err == nil {
			resp.Body.Close()
			err = ctx.Err()
		}
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		resp.Body.Close()
		cancel()
		return nil, &refusedError{resp.StatusCode}
	}
	return &cancelledBody{resp.Body, cancel}, nil
}

// refusedError is a stream that the server does not give.
type refusedError struct{ status int }

func (e *refusedError) Error() string {
	return fmt.Sprintf("it does not go on with its stream (HTTP status %d)", e.status)
}

// follow takes the events of a stream until the answer to its request is there or ctx ends, and
// closes the body. A stream that breaks is asked for anew, after a pause, if that can be: an answer
// by its last event.
func (s *stream) follow(ctx context.Context, body io.ReadCloser) error {
	for pause := time.Second; ; pause = min(2*pause, maxResume) {
		events, err := s.take(&boundedBody{Reader: body, left: maxMessage})
		body.Close()
		switch {
		case err == nil: // it is answered
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errNoAnswer) || s.id != 0 && s.last == "":
			return err
		case events > 0 && s.pause > 0:
			pause = s.pause
		case events > 0:
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		body, err = s.open(ctx)
		switch refused, ok := errors.AsType[*refusedError](err); {
		case ok:
			return refused
		case err != nil:
			body = http.NoBody
		}
	}
}

// take takes the events of one body. The error is nil once the request is answered, wraps
// errNoAnswer if the stream broke or ended before, and else is of a server that breaks rules.
func (s *stream) take(body *boundedBody) (events int, err error) {
	t := s.transport
	for e, err := range eventstream.Read(body, maxMessage) {
		switch {
		case errors.Is(err, eventstream.ErrTooLong), errors.Is(err, errMessageSize):
			t.end(errMessageSize)
			return events, errMessageSize
		case err != nil:
			return events, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		events++
		body.left = maxMessage
		if e.ID != nil {
			s.last = *e.ID
		}
		if e.Retry > 0 {
			s.pause = min(e.Retry, maxResume)
		}
		if len(e.Data) > 0 {
			err = t.receive(e.Data)
		} else if _, err = t.client.limit.admit(0, false); err != nil {
			t.end(err)
		}
		if err != nil || s.id != 0 && !t.client.waits(s.id) {
			return events, err
		}
	}
	return events, errNoAnswer
}

// boundedBody is an answer, or a part of one, of at most left bytes.
type boundedBody struct {
	io.Reader
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errMessageSize
	}
	return n, err
}

// cancelledBody gives back the context of its request when it is closed.
type cancelledBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelledBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
