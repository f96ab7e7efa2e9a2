package mcpserve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/jsonrpc"
)

// stdio is a transport over lines of at most frame.MaxPayload bytes. Unlike the SDK's it outlives
// a line that is no message, and answers a request whose id another one has that runs: with an error. It ends only when what was asked
// before the end of the lines is answered, but for calls of tools, which the SDK cancels then.
type stdio struct {
	in *frame.Reader // one goroutine reads

	mu      sync.Mutex // guards all below
	out     io.Writer
	running map[sdk.ID]bool // requests that were read and have no answer yet; true for those that are owed one before the end
	broken  bool            // out takes no more
	changed *sync.Cond      // running or broken, or a context has ended
}

func newStdio(in io.Reader, out io.Writer) *stdio {
	s := &stdio{in: frame.NewReader(in), out: out, running: map[sdk.ID]bool{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Connect implements [mcp.Transport].
func (s *stdio) Connect(context.Context) (mcp.Connection, error) { return s, nil }

// SessionID implements [mcp.Connection]: lines have none.
func (*stdio) SessionID() string { return "" }

// Close implements [mcp.Connection]. Whoever started us closes stdin, and by that ends Read.
func (*stdio) Close() error { return nil }

// Read implements [mcp.Connection].
func (s *stdio) Read(ctx context.Context) (sdk.Message, error) {
	for {
		line, err := s.in.Next()
		if tooLarge, ok := errors.AsType[*frame.TooLargeError](err); ok {
			err = s.refuse(jsonrpc.NullID, fmt.Sprintf("a line has more than %d bytes", tooLarge.Limit))
		} else if err == nil {
			var message sdk.Message
			if message, err = s.decode(line); message != nil {
				return message, nil
			}
		}
		if err != nil {
			s.settle(ctx)
			return nil, err
		}
	}
}

// begin notes that a request, if it is one, runs. It is false for one whose id another one has that runs: the SDK would not answer it.
func (s *stdio) begin(message sdk.Message) bool {
	r, ok := message.(*sdk.Request)
	if !ok || !r.IsCall() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.running[r.ID]; used {
		return false
	}
	s.running[r.ID] = r.Method != "tools/call"
	return true
}

// settle waits until everything that is owed was answered, or cannot be.
func (s *stdio) settle(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.Contains(slices.Collect(maps.Values(s.running)), true) && !s.broken && ctx.Err() == nil {
		s.changed.Wait()
	}
}

// decode is the message of a line; nil where there is none, as it was answered or needs no
// answer. The error is of the answer.
func (s *stdio) decode(line []byte) (sdk.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	if _, err := jsonrpc.DecodeResponse(line); err == nil {
		return nil, nil // nothing was asked
	}
	body := jsonrpc.DecodeBody(line, 1)
	if body.Batch {
		return nil, s.refuse(jsonrpc.NullID, "MCP has no batches: send each message on a line of its own")
	}
	item := body.Items[0]
	if item.Refused != nil {
		return nil, s.write(jsonrpc.AppendResponse(nil, *item.Refused))
	}
	if item.Request.ID == jsonrpc.NullID {
		return nil, s.refuse(jsonrpc.NullID, `member "id" is a string or a number`)
	}
	if id := item.Request.ID.String(); id != "" && !takesID(id) {
		return nil, s.refuse(item.Request.ID, fmt.Sprintf(`member "id" is a string or a whole number of at most %d`, int64(maxID)))
	}
	if item.Request.Method == "notifications/cancelled" && !takesID(gjson.GetBytes(line, "params.requestId").Raw) {
		return nil, nil // no request has it
	}
	message, err := sdk.DecodeMessage(bytes.Clone(line))
	if err != nil {
		return nil, s.refuse(item.Request.ID, err.Error())
	}
	if !s.begin(message) {
		return nil, s.refuse(item.Request.ID, fmt.Sprintf("the id %s is in use by a request that runs", item.Request.ID))
	}
	return message, nil
}

// maxID is how far from 0 a number may be that is an id: further ones are not whole for every client, and the library would take them for others.
const maxID = 1 << 53

// takesID reports whether an id, in JSON, is one that a request may have here.
func takesID(id string) bool {
	n, err := strconv.ParseInt(id, 10, 64)
	return strings.HasPrefix(id, `"`) || err == nil && -maxID <= n && n <= maxID
}

// refuse answers what is no message.
func (s *stdio) refuse(id jsonrpc.ID, details string) error {
	if id.IsZero() {
		id = jsonrpc.NullID
	}
	return s.write(jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: id, Error: &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest, Message: "Invalid Request", Data: &jsonrpc.ErrorData{Type: jsonrpc.TypeInvalidRequest, Details: details},
	}}))
}

// Write implements [mcp.Connection].
func (s *stdio) Write(_ context.Context, message sdk.Message) error {
	r, answer := message.(*sdk.Response)
	if answer {
		message = coded(r)
	}
	line, err := sdk.EncodeMessage(message)
	if err != nil {
		err = fmt.Errorf("encode a message: %w", err)
	}
	s.mu.Lock() // whoever has read the answer may use its id again
	defer s.mu.Unlock()
	if err == nil {
		err = s.writeLocked(line)
	}
	if answer {
		delete(s.running, r.ID)
		s.changed.Broadcast()
	}
	return err
}

// coded is an answer whose error has a code: the SDK gives 0, which is none of JSON-RPC, to what came before
// initialize, where the protocol takes nothing but pings.
func coded(r *sdk.Response) *sdk.Response {
	if e, ok := errors.AsType[*sdk.Error](r.Error); r.Error == nil || ok && e.Code != 0 {
		return r
	}
	return &sdk.Response{ID: r.ID, Error: &sdk.Error{Code: sdk.CodeInvalidRequest, Message: r.Error.Error()}}
}

func (s *stdio) write(line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(line)
}

// writeLocked is write for a caller that holds mu.
func (s *stdio) writeLocked(line []byte) error {
	_, err := s.out.Write(append(line, '\n'))
	if err != nil {
		s.broken = true
		s.changed.Broadcast()
	}
	return err
}
