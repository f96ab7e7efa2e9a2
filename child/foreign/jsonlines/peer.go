package jsonlines

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol/strict"
)

const (
	// maxTasks is how many tasks run beside the reader.
	maxTasks = 64
	// maxUnsound is how many lines in a row may be no object.
	maxUnsound = 64
)

// Handler is what a program's objects are for.
type Handler interface {
	// Take takes one. Nothing is read until it returns.
	Take(object gjson.Result)
}

// Peer is the program at the other end.
type Peer struct {
	program *foreign.Program
	handler Handler
	log     *zap.Logger
	reading sync.WaitGroup

	ctx    context.Context // of the tasks
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	room   chan struct{}
	ended  chan struct{} // closed once nothing is read any more; err is valid then
	err    error

	mu    sync.Mutex // guards calls
	calls map[string]chan gjson.Result
}

// Start reads what a program writes, until Close. The program is the peer's from now on.
func Start(program *foreign.Program, h Handler, log *zap.Logger) *Peer {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Peer{
		program: program, handler: h, log: log, ctx: ctx, cancel: cancel,
		room: make(chan struct{}, maxTasks), ended: make(chan struct{}), calls: map[string]chan gjson.Result{},
	}
	p.reading.Go(p.read)
	return p
}

// Program is the program.
func (p *Peer) Program() *foreign.Program { return p.program }

// Close ends the program and returns when nothing of it is read or done any more.
func (p *Peer) Close() {
	p.program.Close()
	p.reading.Wait()
}

// Ended is closed once the program has ended and all that it wrote was taken.
func (p *Peer) Ended() <-chan struct{} { return p.ended }

// End waits for that and says how it ended. It wraps foreign.ErrEnded.
func (p *Peer) End() error {
	<-p.ended
	return p.err
}

// Go runs a task beside the reader; false if too many run. Its ctx ends with the program.
func (p *Peer) Go(task func(ctx context.Context)) bool {
	select {
	case p.room <- struct{}{}:
		p.tasks.Go(func() {
			defer func() { <-p.room }()
			task(p.ctx)
		})
		return true
	default:
		return false
	}
}

// Send writes an object, before all that is sent later. What cannot be written to a program means
// that it ends: whoever waits for it hears that from Ended. So an error is of the object alone.
func (p *Peer) Send(object any) error {
	line, err := json.Marshal(object, jsontext.PreserveRawStrings(true))
	if err != nil {
		return err // text that is not UTF-8
	}
	if p.program.Write(line) != nil {
		p.program.Unwritable()
	}
	return nil
}

// Call sends an object and waits for what Answered is given for its id. An error wraps
// foreign.ErrEnded, or is that of ctx, whose end the program is not told.
func (p *Peer) Call(ctx context.Context, id, name string, object any) (gjson.Result, error) {
	answer := make(chan gjson.Result, 1)
	p.mu.Lock()
	p.calls[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, id)
	}()
	if err := p.Send(object); err != nil {
		return gjson.Result{}, fmt.Errorf("%s: %w", name, err)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-p.ended:
	case <-ctx.Done():
		return gjson.Result{}, foreign.Silent(ctx, "the program does not answer "+name)
	}
	select {
	case a := <-answer: // its last words
		return a, nil
	default:
		return gjson.Result{}, fmt.Errorf("%s: %w", name, p.err)
	}
}

// Answered hands on an answer to whoever waits for it; false if nobody does. The handler calls it.
func (p *Peer) Answered(id string, answer gjson.Result) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.calls[id]
	delete(p.calls, id)
	if waiting != nil {
		waiting <- answer
	}
	return waiting != nil
}

// read reads to the end.
func (p *Peer) read() {
	unsound := 0
	for {
		line, err := p.program.Next()
		if _, long := errors.AsType[*foreign.TooLongError](err); err != nil && !long {
			break
		}
		object, ok := gjson.Result{}, false
		if err == nil {
			object, ok = Decode(line)
		}
		if ok {
			unsound = 0
			p.handler.Take(object)
			continue
		}
		p.log.Debug("a line of the program is no object", zap.ByteString("line", line[:min(len(line), 200)]), zap.Error(err))
		if unsound++; unsound == maxUnsound {
			p.program.GiveUp(fmt.Sprintf("killed, as %d lines that it wrote were no messages", maxUnsound))
		}
	}
	p.cancel()
	p.err = p.program.Drained()
	close(p.ended)
	p.tasks.Wait()
}

// Decode reads one object, which does not share memory with the line; false if it is none. What
// JavaScript programs make of text that they cut within a character (half of a surrogate pair) is
// replaced rather than the object lost.
func Decode(line []byte) (gjson.Result, bool) {
	if strict.Valid(line) != nil {
		mended := jsontext.Value(line).Clone()
		if mended.Format(jsontext.AllowInvalidUTF8(true)) != nil || strict.Valid(mended) != nil {
			return gjson.Result{}, false
		}
		line = mended
	}
	object := gjson.ParseBytes(line) // copies the line
	return object, object.IsObject()
}
