package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/writequeue"
)

// ErrNoReader says that nobody reads stdout any more.
var ErrNoReader = errors.New("stdout has no reader")

// lostGrace is how long the turn in flight may take to be saved once stdout
// has no reader.
const lostGrace = 100 * time.Millisecond

// errShutdown is the cause of a turn's end by shutdown or by the end of ctx.
var errShutdown = errors.New("the child is shutting down")

// server is one running child. Its reader acts on commands, its worker runs turns; what
// they share is in the types below, each of which guards its own.
type server struct {
	*Options
	out        *emitter
	session    *session
	queue      *turnQueue
	relay      *relay
	background *background

	cancel  context.CancelCauseFunc // ends the turns and the background tasks
	lost    chan error              // why stdout was lost; the first is kept, later ones say the same
	endOnce sync.Once               // for Options.Ending
}

func newServer(stdout io.Writer, options Options) *server {
	o := options.withDefaults()
	s := &server{Options: o, lost: make(chan error, 1)}
	s.out = newEmitter(stdout, o.ASCII, o.Journal.Path(), s.stdoutFailed)
	var ctx context.Context
	ctx, s.cancel = context.WithCancelCause(context.Background())
	s.session = openSession(o)
	s.queue = newTurnQueue(ctx, s.out)
	s.relay = newRelay(o.Parent, s.out)
	s.background = newBackground(ctx, s.out)
	return s
}

// Serve runs the child until shutdown, the end of stdin, the end of ctx, or
// the loss of stdout's reader, which is ErrNoReader or the error of the write, or until the program
// of Options.Foreign has ended, which is a *foreign.EndError.
// It returns nil otherwise, at most DefaultGrace after it was told to end; the
// end of stdin alone lets it finish what was read first.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer, o Options) error {
	s := newServer(stdout, o)
	unwatch := watchReader(stdout, func() { s.stdoutFailed(ErrNoReader) })
	defer unwatch()
	s.out.post(protocol.Ready{SessionID: s.State.SessionID, Model: s.Start.Model, ProtocolVersion: protocol.Version})
	s.session.sendUpdate(s.out.post)

	done := s.work()
	input := make(chan error, 1)  // how stdin ended
	unread := make(chan struct{}) // closed when stdin is read no more
	go func() { defer close(unread); input <- s.read(stdin) }()

	var err error
	select {
	case err = <-s.lost:
	case <-s.Foreign.Gone():
		err = s.Foreign.Err()
	case <-ctx.Done():
	case end := <-input:
		<-unread
		if !errors.Is(end, errShutdown) {
			if end != nil && !errors.Is(end, io.EOF) {
				s.Log.Warn("stdin broke", zap.Error(end))
			}
			s.drain()
			select {
			case <-done:
			case err = <-s.lost:
			case <-s.Foreign.Gone():
				err = s.Foreign.Err()
			case <-ctx.Done():
			}
			select { // the last frames may have been lost just now
			case err = <-s.lost:
			default:
			}
		}
	}
	s.stop()
	grace := DefaultGrace
	if err != nil {
		grace = lostGrace // nobody waits for what is left but the journal
	}
	s.join(done, unread, stdin, grace)
	return err
}

// work starts the worker and the relay, and closes done when they and all others who
// write have ended.
func (s *server) work() (done <-chan struct{}) {
	w := &worker{session: s.session, out: s.out, queue: s.queue, relay: s.relay, files: agentFiles{s.ToolEnv, s.Images}}
	worked, ended := make(chan struct{}), make(chan struct{})
	var relay sync.WaitGroup
	relay.Go(func() { s.relay.run(worked) })
	go func() {
		defer close(ended)
		w.runJobs()
		close(worked)
		relay.Wait()
		s.background.tasks.Wait()
		<-s.out.out.Close()
	}()
	return ended
}

// stdoutFailed begins the end because of an error of stdout.
func (s *server) stdoutFailed(err error) {
	s.announceEnd(err)
	select {
	case s.lost <- err:
	default:
	}
}

// announceEnd tells the program, once, that the end has begun.
func (s *server) announceEnd(err error) {
	if s.Ending != nil {
		s.endOnce.Do(func() { s.Ending(err) })
	}
}

// join waits for the goroutines, no longer than grace. A read or write that
// nothing can interrupt outlives it; the process ends then.
func (s *server) join(done, unread <-chan struct{}, stdin io.Reader, grace time.Duration) {
	select {
	case <-unread:
		unread = nil
	default:
		if !interrupt(stdin) {
			unread = nil
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for done != nil || unread != nil {
		select {
		case <-done:
			done = nil
		case <-unread:
			unread = nil
		case <-timer.C:
			s.Log.Warn("gave up waiting for the turn in flight", zap.Duration("grace", grace))
			return
		}
	}
}

// interrupt makes a blocked read return, and reports whether the stream can do
// that: a terminal or a pipe of the shell's cannot.
func interrupt(stdin io.Reader) bool {
	if d, ok := stdin.(interface{ SetReadDeadline(t time.Time) error }); ok {
		return d.SetReadDeadline(time.Unix(1, 0)) == nil
	}
	c, ok := stdin.(io.Closer)
	return ok && c.Close() == nil
}

// read takes commands until stdin ends or one says shutdown. It never waits
// for a turn nor for the reader of stdout, so that abort, ping and shutdown are
// acted on at once.
func (s *server) read(stdin io.Reader) error {
	lines := frame.NewReader(stdin)
	for {
		line, err := lines.Next()
		if _, tooLarge := errors.AsType[*frame.TooLargeError](err); tooLarge {
			s.out.post(commandError("", err))
			continue
		}
		if err != nil {
			return err
		}
		command, err := protocol.DecodeCommand(line)
		if err != nil {
			s.out.post(commandError(commandID(err), err))
			continue
		}
		if _, ok := command.(protocol.Shutdown); ok {
			s.stop()
			return errShutdown
		}
		if err := checkID(command); err != nil {
			s.out.post(commandError("", err))
			continue
		}
		s.handle(command)
	}
}

// checkID reports why an answer to the command could not be told from others.
func checkID(c protocol.Command) error {
	id := c.Ident()
	if _, ok := c.(protocol.ToolsList); id == "" && !ok {
		return fmt.Errorf("%s: member \"id\" is empty", c.Name())
	}
	if len(id) > protocol.MaxID {
		return fmt.Errorf("%s: id is longer than %d bytes", c.Name(), protocol.MaxID)
	}
	return nil
}

// commandID is the id of the command that could not be decoded; "" if unknown.
func commandID(err error) (id string) {
	if e, ok := errors.AsType[*protocol.SyntaxError](err); ok {
		id = e.ID
	}
	if e, ok := errors.AsType[*protocol.UnknownTypeError](err); ok {
		id = e.ID
	}
	if e, ok := errors.AsType[*protocol.MemberError](err); ok {
		id = e.ID
	}
	if len(id) > protocol.MaxID {
		return ""
	}
	return id
}

// handle acts on one command, on the reader's goroutine.
func (s *server) handle(c protocol.Command) {
	if err := s.queue.checkID(c); err != nil {
		s.out.post(commandError(c.Ident(), err))
		return
	}
	if err := s.session.unsupported(c); err != nil {
		s.out.post(failure(c, err))
		return
	}
	handlers[c.Name()].handle(s, c)
}

// drain lets what was accepted finish and accepts nothing more.
func (s *server) drain() {
	s.background.close()
	s.queue.close()
}

// stop ends the turn that runs and drops those that wait. It does not wait for
// the reader of stdout.
func (s *server) stop() {
	s.announceEnd(nil)
	s.background.close()
	s.queue.drop()
	s.cancel(errShutdown)
}

// watchReader calls gone, once, when stdout, a pipe or a socket, has lost its reader: the
// parent is dead then. stop ends the watch.
func watchReader(stdout io.Writer, gone func()) (stop func()) {
	f, ok := stdout.(*os.File)
	if !ok {
		return func() {}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return func() {}
	}
	return writequeue.WatchReader(f, gone)
}
