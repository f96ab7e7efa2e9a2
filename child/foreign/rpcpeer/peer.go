package rpcpeer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
)

const (
	// maxAnswers is how many requests of a program are answered at once.
	maxAnswers = 64
	// maxUnsound is how many lines in a row may be no message.
	maxUnsound = 64
)

// Handler is what a program's messages are for.
type Handler interface {
	// Take takes a notification, or learns of a request before Answer answers it. Nothing is read
	// until it returns.
	Take(m Message)
	// Answered is called when a call of ours was answered, before anything is read that follows.
	Answered(method string)
	// Answer answers a request: with a value that becomes JSON, or with an error, an *Error as it is.
	// It runs beside all others. ctx ends with the program.
	Answer(ctx context.Context, m Message) (any, error)
}

// Message is a notification or a request of a program.
type Message struct {
	Method string
	Params gjson.Result
	Raw    string // all of it, as the program wrote it
}

// Options are how a program wants it.
type Options struct {
	// NoVersion leaves out the member "jsonrpc".
	NoVersion bool
	Log       *zap.Logger // not nil
}

// Peer is the program at the other end.
type Peer struct {
	program *foreign.Program
	handler Handler
	options Options
	reading sync.WaitGroup
	over    chan struct{} // closed when nothing is read any more

	mu    sync.Mutex // guards all below
	last  uint64     // id of a call of ours
	calls map[uint64]*call
	ended error // nothing is read any more
}

// call is one of ours that waits for its answer.
type call struct {
	method string
	answer chan answer // of one
}

type answer struct {
	result gjson.Result
	err    error
}

// Start reads what a program writes, until Close. The program is the peer's from now on.
func Start(program *foreign.Program, h Handler, o Options) *Peer {
	p := &Peer{program: program, handler: h, options: o, calls: map[uint64]*call{}, over: make(chan struct{})}
	p.reading.Go(p.read)
	return p
}

// Program is the program.
func (p *Peer) Program() *foreign.Program { return p.program }

// Ended is closed when the program has ended and all that it said was handed on; Err says how.
func (p *Peer) Ended() <-chan struct{} { return p.over }

// Err is how the program has ended, as foreign.EndError; nil if it has not.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Close ends the program and returns when nothing of it is read or answered any more.
func (p *Peer) Close() {
	p.program.Close()
	p.reading.Wait()
}

// Pending is a call that was sent.
type Pending struct {
	peer *Peer
	id   uint64
	call *call
}

// Send sends a call, before all that is sent later.
func (p *Peer) Send(method string, params any) (Pending, error) {
	c := &call{method: method, answer: make(chan answer, 1)}
	id, err := p.register(c)
	if err != nil {
		return Pending{}, err
	}
	raw := jsontext.Value(strconv.FormatUint(id, 10))
	if err := p.write(message{ID: raw, Method: method, Params: params}); err != nil {
		p.take(id)
		return Pending{}, fmt.Errorf("%s: %w", method, err)
	}
	return Pending{p, id, c}, nil
}

// Wait waits for the result. An error is the *Error of the program, wraps foreign.ErrEnded, or is that
// of ctx, whose end the program is not told.
func (c Pending) Wait(ctx context.Context) (gjson.Result, error) {
	select {
	case a := <-c.call.answer:
		return a.result, a.err
	case <-ctx.Done():
		c.peer.take(c.id)
		return gjson.Result{}, foreign.Silent(ctx, "the program does not answer "+c.call.method)
	}
}

// Call is Send and Wait.
func (p *Peer) Call(ctx context.Context, method string, params any) (gjson.Result, error) {
	pending, err := p.Send(method, params)
	if err != nil {
		return gjson.Result{}, err
	}
	return pending.Wait(ctx)
}

// Notify sends a notification.
func (p *Peer) Notify(method string, params any) error {
	return p.write(message{Method: method, Params: params})
}

func (p *Peer) register(c *call) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return 0, p.ended
	}
	p.last++
	p.calls[p.last] = c
	return p.last, nil
}

// take is the call of that id, which waits no more; nil if there is none.
func (p *Peer) take(id uint64) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	delete(p.calls, id)
	return c
}

// message is one that we write. Of a call: ID, Method, Params.
type message struct {
	Version string         `json:"jsonrpc,omitempty"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitempty"`
	Params  any            `json:"params,omitzero"`
	Result  any            `json:"result,omitzero"`
	Error   *Error         `json:"error,omitzero"`
}

// write writes a message. What cannot be written to a program means that it ends: whoever waits
// for it hears that from the reader.
func (p *Peer) write(m message) error {
	if !p.options.NoVersion {
		m.Version = "2.0"
	}
	line, err := json.Marshal(m, jsontext.PreserveRawStrings(true)) // ids stay as they are
	if err != nil {
		return err // a value of ours, or text that is not UTF-8
	}
	if p.program.Write(line) != nil {
		p.program.Unwritable()
	}
	return nil
}

// read reads to the end.
func (p *Peer) read() {
	ctx, cancel := context.WithCancel(context.Background())
	var answering sync.WaitGroup
	room := make(chan struct{}, maxAnswers)
	unsound := 0
	for {
		line, err := p.program.Next()
		if _, long := errors.AsType[*foreign.TooLongError](err); err != nil && !long {
			break
		}
		m, ok := incoming{}, false
		if err == nil {
			m, ok = decode(line)
		}
		if !ok {
			p.options.Log.Debug("a line of the program is no message", zap.ByteString("line", line[:min(len(line), 200)]), zap.Error(err))
			if unsound++; unsound == maxUnsound {
				p.program.GiveUp(fmt.Sprintf("killed, as %d lines that it wrote were no messages", maxUnsound))
			}
			continue
		}
		unsound = 0
		switch m.is {
		case notification:
			p.handler.Take(m.Message)
		case response:
			p.answered(m)
		case request:
			select {
			case room <- struct{}{}:
				p.handler.Take(m.Message)
				answering.Go(func() {
					defer func() { <-room }()
					p.respond(ctx, m)
				})
			default:
				_ = p.write(message{ID: m.id, Error: &Error{Code: CodeBusy, Message: "too many requests at once"}})
			}
		}
	}
	cancel()
	err := p.program.Drained()
	p.mu.Lock()
	p.ended = err
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	close(p.over)
	for _, c := range calls {
		c.answer <- answer{err: err}
	}
	answering.Wait()
}

// answered hands on an answer of the program.
func (p *Peer) answered(m incoming) {
	id, err := strconv.ParseUint(string(m.id), 10, 64)
	if err != nil {
		return // of nobody
	}
	c := p.take(id)
	if c == nil {
		return // nobody waits for it any more
	}
	p.handler.Answered(c.method)
	a := answer{result: m.result}
	if m.failure != nil {
		a.err = m.failure
	}
	c.answer <- a
}

// respond answers a request.
func (p *Peer) respond(ctx context.Context, m incoming) {
	reply := message{ID: m.id}
	result, err := p.handler.Answer(ctx, m.Message)
	if err == nil {
		reply.Result = result
	} else if e, ok := errors.AsType[*Error](err); ok {
		reply.Error = e
	} else {
		reply.Error = &Error{Code: CodeInternal, Message: err.Error()}
	}
	if err := p.write(reply); err != nil {
		reply.Result, reply.Error = nil, &Error{Code: CodeInternal, Message: "the answer is no JSON"}
		_ = p.write(reply)
	}
}
