package acpserve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/jsonrpc"
)

// peer is the editor: what is written to it, and what it is asked. It is safe for concurrent use.
type peer struct {
	out *frame.Writer
	end context.CancelCauseFunc // when nobody reads what is written

	mu     sync.Mutex // guards what follows
	lost   error      // of the first line that could not be written
	lastID int64
	asked  map[jsonrpc.ID]chan<- jsonrpc.Response // each has room for its answer
}

// write writes a line. Where that fails for good, it ends the program.
func (p *peer) write(line []byte) error {
	err := p.out.Write(line)
	if _, tooLarge := errors.AsType[*frame.TooLargeError](err); err != nil && !tooLarge {
		err = fmt.Errorf("write to the editor: %w", err)
		p.mu.Lock()
		p.lost = cmp.Or(p.lost, err)
		p.mu.Unlock()
		p.end(err)
	}
	return err
}

// unheard is why the editor takes nothing any more; nil if it does.
func (p *peer) unheard() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// answer answers a request of the editor.
func (p *peer) answer(id jsonrpc.ID, result any, failure error) {
	response := jsonrpc.Response{ID: id}
	if failure == nil {
		response.Result, failure = json.Marshal(result)
	}
	if failure != nil {
		response.Error = explained(failure)
	}
	err := p.write(jsonrpc.AppendResponse(nil, response))
	if tooLarge, ok := errors.AsType[*frame.TooLargeError](err); ok {
		_ = p.write(jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: id, Error: &jsonrpc.Error{
			Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the answer has more than %d bytes", tooLarge.Limit),
		}})) // an error has ended the program
	}
}

// update tells the editor of a session. What does not fit into a line is left out.
func (p *peer) update(session string, update any) {
	line, err := jsonrpc.AppendNotification(nil, "session/update", sessionUpdate{session, update})
	if err == nil {
		err = p.write(line)
	}
	if call, ok := update.(callUpdate); ok && err != nil && (call.Content != nil || call.RawInput != nil) {
		call.RawInput, call.Content = nil, []callContent{{Type: "content", Content: new(textBlock("(too long to be shown here)"))}}
		p.update(session, call)
	}
}

// ask asks the editor, and returns when it has answered or ctx ends. Then the question is withdrawn.
func (p *peer) ask(ctx context.Context, method string, params any) (jsontext.Value, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("ask the editor: %w", err)
	}
	answered := make(chan jsonrpc.Response, 1)
	p.mu.Lock()
	p.lastID++
	id := jsonrpc.NumberID(p.lastID)
	p.asked[id] = answered
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asked, id)
	}()
	line, err := jsonrpc.AppendRequest(nil, jsonrpc.Request{Method: method, ID: id, Params: raw})
	if err == nil {
		err = p.write(line)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the editor: %w", err)
	}
	select {
	case response := <-answered:
		if response.Error != nil {
			return nil, fmt.Errorf("ask the editor: %w", response.Error)
		}
		return response.Result, nil
	case <-ctx.Done():
		if line, err := jsonrpc.AppendNotification(nil, "$/cancel_request", cancelRequest{jsontext.Value(id.String())}); err == nil {
			_ = p.write(line) // an error has ended the program
		}
		return nil, ctx.Err()
	}
}

// take hands an answer of the editor to whoever asked. One to nothing that was asked is dropped.
func (p *peer) take(response jsonrpc.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered := p.asked[response.ID]; answered != nil {
		delete(p.asked, response.ID)
		answered <- response
	}
}
