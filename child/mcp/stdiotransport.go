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

	"go.uber.org/zap"
)

const (
	// exitTimeout is how long a program has to end once its stdin is closed.
	exitTimeout = 500 * time.Millisecond
	// writeTimeout is how long a program may leave its stdin unread: longer than
	// connectTimeout, whose error says more.
	writeTimeout = 40 * time.Second
)

var errClosed = errors.New("the connection is closed")

// stdioTransport is the connection to a server that is a program: messages are lines.
type stdioTransport struct {
	process Process
	client  *client
	end     context.CancelCauseFunc // of the session, for what the program did
	log     *zap.Logger
	done    chan struct{} // closed when stdout has ended

	writing   chan struct{} // has room for the one that writes
	closing   sync.Once
	closed    chan struct{}
	killTimer *time.Timer // set before closed is
	killed    atomic.Bool
}

// newStdioTransport begins to read what the program says. Its wait must be called.
func newStdioTransport(process Process, c *client, end context.CancelCauseFunc, log *zap.Logger) *stdioTransport {
	p := &stdioTransport{
		process: process, client: c, end: end, log: log, done: make(chan struct{}),
		writing: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	go p.read()
	return p
}

// read takes what the program says until that has ended, which close sees to. A program
// that breaks the rules is killed.
func (p *stdioTransport) read() {
	defer close(p.done)
	reader := bufio.NewReaderSize(p.process.Stdout(), 32<<10)
	junk := 0
	for {
		line, err := readLine(reader, maxMessage) // an unfinished last one is lost
		line = bytes.TrimRight(line, "\r\n")
		if err == nil && len(line) > 0 {
			err = p.client.receive(line)
		}
		if errors.Is(err, errNoMessage) && !p.client.speaks(line) { // many programs say other things on stdout: a few are let pass
			p.log.Debug("no message on stdout", zap.Int("bytes", len(line)))
			if junk++; junk <= maxJunk {
				continue
			}
			err = errJunk
		}
		if err != nil {
			p.end(err)
			if !errors.Is(err, io.EOF) {
				p.kill()
			}
			return
		}
	}
}

func (p *stdioTransport) begin(ctx context.Context, _ string, initialized []byte) error {
	return p.send(ctx, 0, initialized)
}

// send implements [transport]. It waits for the program to read, until ctx ends or writeTimeout is
// over, and not for an answer. A message that was written in part is the end of the connection.
func (p *stdioTransport) send(ctx context.Context, _ int64, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-p.closed:
		return &undeliveredError{errClosed}
	case <-ctx.Done():
		return &undeliveredError{ctx.Err()}
	}
	stdin := p.process.Stdin()
	if err := stdin.SetWriteDeadline(time.Time{}); err != nil {
		return &undeliveredError{err}
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = stdin.SetWriteDeadline(time.Unix(1, 0)) // fails only if it was closed
	})
	n, err := stdin.Write(append(message, '\n'))
	if !stop() {
		<-interrupted
	}
	if errors.Is(err, syscall.EPIPE) {
		err = io.EOF // as read may have found out first
	}
	switch {
	case err == nil:
		return nil
	case n > 0 || ctx.Err() == nil:
		p.end(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = errors.New("it does not read its stdin")
	default:
		err = ctx.Err()
	}
	if n == 0 {
		return &undeliveredError{err}
	}
	return err
}

// close implements [transport]. It tells the program to end, by the end of its stdin, and has it killed
// after grace. It does not wait.
func (p *stdioTransport) close() {
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
// by our hand. close must have been called.
func (p *stdioTransport) wait() error {
	err := p.process.Wait()
	p.killTimer.Stop()
	p.process.Close()
	<-p.done
	if p.killed.Load() {
		return nil
	}
	return err
}
