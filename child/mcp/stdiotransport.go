package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/protocol/strict"
)

const (
	// exitTimeout is how long a program has to end once its stdin is closed.
	exitTimeout = 500 * time.Millisecond
	// writeTimeout is how long a program may leave its stdin unread.
	writeTimeout = 30 * time.Second
)

var errClosed = errors.New("the connection is closed")

// stdioTransport is the connection to a server that is a program: messages are lines. It
// is the SDK's view of a [Process] and starts no goroutine.
type stdioTransport struct {
	process Process
	limit   *flowLimit
	log     *zap.Logger

	reader *bufio.Reader // the rest is of the goroutine that reads
	junk   int

	writing   chan struct{} // has room for the one that writes
	closing   sync.Once
	closed    chan struct{}
	killTimer *time.Timer // set before closed is
	killed    atomic.Bool
	mu        sync.Mutex     // guards all below
	pending   map[int64]bool // ids of our calls
}

func newStdioTransport(p Process, g *flowLimit, log *zap.Logger) *stdioTransport {
	return &stdioTransport{
		process: p, limit: g, log: log, reader: bufio.NewReaderSize(p.Stdout(), 32<<10),
		writing: make(chan struct{}, 1), closed: make(chan struct{}), pending: map[int64]bool{},
	}
}

func (p *stdioTransport) Connect(context.Context) (sdk.Connection, error) { return p, nil }

func (p *stdioTransport) SessionID() string { return "" }

// Read implements [sdk.Connection]. It ends when the program has ended, which
// closeStdin sees to. A program that breaks the rules is killed.
func (p *stdioTransport) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := p.line()
		var msg jsonrpc.Message
		if err == nil && len(line) > 0 {
			msg, err = p.decode(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			p.limit.endConnection(err)
			return nil, err
		case err != nil:
			p.limit.endConnection(err)
			p.kill()
			return nil, err
		case msg != nil:
			return msg, nil
		}
	}
}

// line reads up to the next newline, which it leaves out. An unfinished last one
// is lost.
func (p *stdioTransport) line() ([]byte, error) {
	whole, err := readLine(p.reader, maxMessage)
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(whole, "\r\n"), nil
}

// decode reads a line; nil if it is not passed on. Many programs say things on
// stdout that are no messages, so a few of these are let pass.
func (p *stdioTransport) decode(line []byte) (jsonrpc.Message, error) {
	err := strict.Valid(line)
	if err == nil && line[0] != '{' {
		err = errors.New("is no object")
	}
	if err == nil {
		pass, ended := p.limit.admit(line, p.answersCall(line))
		if !pass {
			return nil, ended
		}
		sanitized, ended := sanitize(line)
		switch {
		case ended != nil:
			return nil, ended
		case sanitized != nil:
			line = sanitized
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

// answersCall reports whether a call waits for the message.
func (p *stdioTransport) answersCall(line []byte) bool {
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

// trackCall remembers that a call waits for an answer, or no longer does.
func (p *stdioTransport) trackCall(msg jsonrpc.Message, data []byte) {
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
// ends or writeTimeout is over. A message that was written in part is
// the end of the connection.
func (p *stdioTransport) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-p.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	p.trackCall(msg, data)
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
	if errors.Is(err, syscall.EPIPE) {
		err = io.EOF // as Read may have found out first
	}
	switch {
	case err == nil:
		return nil
	case n > 0 || ctx.Err() == nil:
		p.limit.endConnection(err)
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("it does not read its stdin")
	default:
		return ctx.Err()
	}
}

func (p *stdioTransport) Close() error {
	p.closeStdin()
	return nil
}

// closeStdin tells the program to end, by the end of its stdin, and has it killed
// after grace. It does not wait.
func (p *stdioTransport) closeStdin() {
	p.closing.Do(func() {
		p.killTimer = time.AfterFunc(exitTimeout, p.kill)
		close(p.closed)
		p.process.Stdin().Close()
	})
}

// kill ends the program without a word.
func (p *stdioTransport) kill() {
	p.killed.Store(true)
	p.process.Kill()
}

// wait returns when nothing of the program is left, and says how it ended if not
// by our hand. closeStdin must have been called.
func (p *stdioTransport) wait() error {
	err := p.process.Wait()
	p.killTimer.Stop()
	p.process.Close()
	if p.killed.Load() {
		return nil
	}
	return err
}
