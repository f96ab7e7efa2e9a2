package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/strict"
)

const (
	// protocolVersion is what we ask for. Servers that are asked for a newer one,
	// which begins in another way, may fall over.
	protocolVersion = "2025-11-25"

	codeMethodNotFound = -32601 // JSON-RPC 2.0
)

// versions are the protocol's versions that we speak: of what we use they have the same.
var versions = []string{protocolVersion, "2025-06-18", "2025-03-26", "2024-11-05"}

var (
	errNoMessage = errors.New("it sent what is no message of JSON-RPC 2.0")
	errNoVersion = errors.New(`jsonrpc is not "2.0"`)
	errNoAnswer  = errors.New("it ended its answer without a result")
)

// undeliveredError is a message that the server cannot have got.
type undeliveredError struct{ error }

// Unwrap returns why.
func (e *undeliveredError) Unwrap() error { return e.error }

// transport carries messages to a server, and passes what comes to client.receive.
type transport interface {
	// send hands over a message. That of a request has an id, and send may wait for its
	// answer. The error is an *undeliveredError if the server cannot have got the message.
	send(ctx context.Context, id int64, message []byte) error
	// begin hands over the notification that ends the handshake, and knows the version from then
	// on.
	begin(ctx context.Context, version string, initialized []byte) error
	// close asks for the end, and does not wait.
	close()
}

// client is our side of a connection. It is safe for concurrent use.
type client struct {
	limit     *flowLimit
	cwd       string
	changed   chan<- struct{} // has room for one: the server's lists have changed
	transport transport

	ctx    context.Context //nolint:containedctx // of what is sent beside calls; ends with close
	cancel context.CancelFunc
	outbox chan []byte // answers and cancellations that wait to be sent; what has no room is lost
	sent   chan struct{}

	mu      sync.Mutex // guards all below
	last    int64
	waiting map[int64]chan<- incoming // by id of the call; each has room for one
}

// newClient makes a client for a connection in a working directory. The transport is given to
// start.
func newClient(limit *flowLimit, cwd string, changed chan<- struct{}) *client {
	c := &client{
		limit: limit, cwd: cwd, changed: changed, waiting: map[int64]chan<- incoming{},
		outbox: make(chan []byte, maxRequests), sent: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// start begins to send.
func (c *client) start(t transport) {
	c.transport = t
	go func() {
		defer close(c.sent)
		for {
			select {
			case m := <-c.outbox:
				ctx, cancel := context.WithTimeout(c.ctx, writeTimeout)
				_ = t.send(ctx, 0, m) // a connection that is lost is noticed by calls
				cancel()
			case <-c.ctx.Done():
				return
			}
		}
	}()
}

// close ends the client. The transport goes on to end after it.
func (c *client) close() {
	c.cancel()
	c.transport.close()
	<-c.sent
}

// initialize agrees with the server on a version and on what it can do.
func (c *client) initialize(ctx context.Context) (initializeResult, error) {
	var r initializeResult
	err := c.call(ctx, "initialize", map[string]any{
		"protocolVersion": protocolVersion,
		"capabilities":    map[string]any{"roots": struct{}{}},
		"clientInfo":      map[string]string{"name": "nexus-child", "version": "1"},
	}, &r)
	if err != nil {
		return initializeResult{}, err
	}
	if !slices.Contains(versions, r.ProtocolVersion) {
		return initializeResult{}, fmt.Errorf("unsupported protocol version: %.40q", r.ProtocolVersion)
	}
	initialized, err := outgoing{Method: "notifications/initialized"}.encode()
	if err != nil {
		return initializeResult{}, err
	}
	return r, c.transport.begin(ctx, r.ProtocolVersion, initialized)
}

// call asks the server for something and reads the answer into result; nil is for none. The
// server is told when ctx ends before the answer is there. The error may be an *rpcError or an
// *undeliveredError.
func (c *client) call(ctx context.Context, method string, params, result any) error {
	answered := make(chan incoming, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = answered
	c.mu.Unlock()
	defer c.claim(id)
	request, err := outgoing{ID: jsontext.Value(strconv.FormatInt(id, 10)), Method: method, Params: params}.encode()
	if err != nil {
		return err
	}
	if err = c.transport.send(ctx, id, request); err == nil {
		select {
		case answer := <-answered:
			return answer.result(result)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	select {
	case answer := <-answered: // the connection ended right after it
		return answer.result(result)
	default:
	}
	if _, undelivered := errors.AsType[*undeliveredError](err); ctx.Err() != nil && !undelivered && method != "initialize" {
		c.post(outgoing{Method: "notifications/cancelled", Params: map[string]any{"requestId": id, "reason": "aborted"}})
	}
	return err
}

// result reads what the answer to a call has.
func (m incoming) result(v any) error {
	switch {
	case m.Error != nil:
		return m.Error
	case v == nil:
		return nil
	default:
		return decodeResult(m.Result, v)
	}
}

// claim is whoever waits for the answer to a call, once; nil if nobody does.
func (c *client) claim(id int64) chan<- incoming {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := c.waiting[id]
	delete(c.waiting, id)
	return answered
}

// waits reports whether a call has no answer yet.
func (c *client) waits(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[id] != nil
}

// receive takes a message of the server. Bytes that are not UTF-8 become U+FFFD. The error wraps
// errNoMessage, or is a reason to end the connection.
func (c *client) receive(raw []byte) error {
	var m incoming
	err := strict.Valid(raw)
	if err != nil && !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
		err = strict.Valid(raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, &m, lenient)
	}
	if err == nil && m.Version != "2.0" {
		err = errNoVersion
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNoMessage, err)
	}
	request := len(m.ID) > 0
	switch {
	case m.Method == "" && (len(m.Result) > 0 || m.Error != nil):
		if answered := c.claim(m.callID()); answered != nil {
			answered <- m
			return nil
		}
		request = false
	case m.Method == "":
		return fmt.Errorf("%w: it has neither method nor result nor error", errNoMessage)
	}
	pass, err := c.limit.admit(len(raw), request)
	switch {
	case err != nil || !pass:
		return err
	case request:
		c.post(c.answer(m))
	case m.Method == "notifications/tools/list_changed", m.Method == "notifications/prompts/list_changed":
		select {
		case c.changed <- struct{}{}:
		default: // that waits already
		}
	}
	return nil
}

// speaks reports whether a line that is no message was meant as one, and is not what programs
// print beside: it is an object with a member jsonrpc, or the answer to a call that waits.
func (c *client) speaks(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("{")) {
		return false
	}
	var m struct {
		Version jsontext.Value `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Result  jsontext.Value `json:"result"`
		Error   jsontext.Value `json:"error"`
	}
	if json.Unmarshal(line, &m, lenient, jsontext.AllowDuplicateNames(true)) != nil { // it is cut off, or too deep
		return bytes.Contains(line, []byte(`"jsonrpc"`))
	}
	return len(m.Version) > 0 || (len(m.Result) > 0 || len(m.Error) > 0) && c.waits(incoming{ID: m.ID}.callID())
}

// answer is the answer to a request of the server's.
func (c *client) answer(m incoming) outgoing {
	answer := outgoing{ID: m.ID}
	switch m.Method {
	case "ping":
		answer.Result = struct{}{}
	case "roots/list":
		root := url.URL{Scheme: "file", Path: filepath.ToSlash(c.cwd)}
		answer.Result = map[string]any{"roots": []map[string]string{{"uri": root.String(), "name": filepath.Base(c.cwd)}}}
	default:
		answer.Error = &rpcError{Code: codeMethodNotFound, Message: "Method not found"}
	}
	return answer
}

// post has a message sent that nobody waits for.
func (c *client) post(m outgoing) {
	data, err := m.encode()
	if err != nil {
		return // of a server's id alone, which was read before
	}
	select {
	case c.outbox <- data:
	default: // a server that does not read
	}
}
