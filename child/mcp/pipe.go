package mcp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/protocol/strict"
)

const (
	// grace is how long a program has to end once its stdin is closed.
	grace = 500 * time.Millisecond
	// writePatience is how long a program may leave its stdin unread.
	writePatience = 30 * time.Second
)

var errClosed = errors.New("the connection is closed")

// pipe is the connection to a server that is a program: messages are lines. It
// is the SDK's view of a [Process] and starts no goroutine.
type pipe struct {
	process Process
	gate    *gate
	log     *zap.Logger

	reader *bufio.Reader // the rest is of the goroutine that reads
	junk   int

	writing chan struct{} // has room for the one that writes
	closing sync.Once
	closed  chan struct{}
	killer  *time.Timer // set before closed is
	kills   atomic.Bool
	mu      sync.Mutex     // guards all below
	pending map[int64]bool // ids of our calls
}

func newPipe(p Process, g *gate, log *zap.Logger) *pipe {
	return &pipe{
		process: p, gate: g, log: log, reader: bufio.NewReaderSize(p.Stdout(), 32<<10),
		writing: make(chan struct{}, 1), closed: make(chan struct{}), pending: map[int64]bool{},
	}
}

// Connect implements [sdk.Transport].
func (p *pipe) Connect(context.Context) (sdk.Connection, error) { return p, nil }

// SessionID implements [sdk.Connection].
func (p *pipe) SessionID() string { return "" }

// Read implements [sdk.Connection]. It ends when the program has ended, which
// shut sees to. A program that breaks the rules is killed.
func (p *pipe) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := p.line()
		var msg jsonrpc.Message
		if err == nil && len(line) > 0 {
			msg, err = p.message(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			p.gate.end(err)
			return nil, err
		case err != nil:
			p.gate.end(err)
			p.kill()
			return nil, err
		case msg != nil:
			return msg, nil
		}
	}
}

// line reads up to the next newline, which it leaves out. An unfinished last one
// is lost.
func (p *pipe) line() ([]byte, error) {
	var whole []byte
	for {
		part, err := p.reader.ReadSlice('\n')
		if len(whole)+len(part) > maxMessage {
			return nil, errMessageSize
		}
		whole = append(whole, part...)
		switch {
		case err == nil:
			for len(whole) > 0 && (whole[len(whole)-1] == '\n' || whole[len(whole)-1] == '\r') {
				whole = whole[:len(whole)-1]
			}
			return whole, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// message reads a line; nil if it is not passed on. Many programs say things on
// stdout that are no messages, so a few of these are let pass.
func (p *pipe) message(line []byte) (jsonrpc.Message, error) {
	err := strict.Valid(line)
	if err == nil && line[0] != '{' {
		err = errors.New("is no object")
	}
	if err == nil {
		pass, ended := p.gate.admit(line, p.answers(line))
		if !pass {
			return nil, ended
		}
		mended, ended := mend(line)
		switch {
		case ended != nil:
			return nil, ended
		case mended != nil:
			line = mended
		}
		var msg jsonrpc.Message
		if msg, err = jsonrpc.DecodeMessage(line); err == nil {
			return msg, nil
		}
	}
	p.junk++
	p.log.Debug("no message on stdout", zap.Int("bytes", len(line)), zap.Error(err))
	if p.junk > maxJunk {
		return nil, errJunk
	}
	return nil, nil //nolint:nilnil // no message, and nothing went wrong
}

// answers reports whether a call waits for the message.
func (p *pipe) answers(line []byte) bool {
	found := gjson.GetManyBytes(line, "method", "id")
	if found[0].Exists() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := p.pending[found[1].Int()]
	delete(p.pending, found[1].Int())
	return waits
}

// note remembers that a call waits for an answer, or no longer does.
func (p *pipe) note(msg jsonrpc.Message, data []byte) {
	request, ok := msg.(*jsonrpc.Request)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case request.IsCall():
		if id, ok := request.ID.Raw().(int64); ok {
			p.pending[id] = true
		}
	case request.Method == "notifications/cancelled":
		delete(p.pending, gjson.GetBytes(data, "params.requestId").Int())
	}
}

// Write implements [sdk.Connection]. It waits for the program to read, until ctx
// ends or writePatience is over. A message of which only a part was written is
// the end of the connection.
func (p *pipe) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-p.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	p.note(msg, data)
	stdin := p.process.Stdin()
	if err := stdin.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = stdin.SetWriteDeadline(time.Unix(1, 0)) // fails only if it was closed
	})
	n, err := stdin.Write(append(data, '\n'))
	if !stop() {
		<-interrupted
	}
	if n > 0 {
		traceOf(ctx).sent.Store(true)
	}
	switch {
	case err == nil:
		return nil
	case n > 0 || ctx.Err() == nil:
		p.gate.end(err)
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("it does not read its stdin")
	default:
		return ctx.Err()
	}
}

// Close implements [sdk.Connection].
func (p *pipe) Close() error {
	p.shut()
	return nil
}

// shut tells the program to end, by the end of its stdin, and has it killed
// after grace. It does not wait.
func (p *pipe) shut() {
	p.closing.Do(func() {
		p.killer = time.AfterFunc(grace, p.kill)
		close(p.closed)
		p.process.Stdin().Close()
	})
}

// kill ends the program without a word.
func (p *pipe) kill() {
	p.kills.Store(true)
	p.process.Kill()
}

// wait returns when nothing of the program is left, and says how it ended if not
// by our hand. shut must have been called.
func (p *pipe) wait() error {
	err := p.process.Wait()
	p.killer.Stop()
	p.process.Close()
	if p.kills.Load() {
		return nil
	}
	return err
}
