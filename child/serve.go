package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/images"
	"nexus.internal/child/prompt"
	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/transcript"
)

// ErrNoReader says that nobody reads stdout any more.
var ErrNoReader = errors.New("stdout has no reader")

// maxIDLength bounds the id of a command, in bytes, so that every frame that
// echoes it has room for more (SPEC §3.3).
const maxIDLength = 4096

// lostGrace is how long the turn in flight may take to be saved once stdout
// has no reader.
const lostGrace = 100 * time.Millisecond

// errShutdown is the cause of a turn's end by shutdown or by the end of ctx.
var errShutdown = errors.New("the child is shutting down")

// Serve runs the child until shutdown, the end of stdin, the end of ctx, or
// the loss of stdout's reader, which is ErrNoReader or the error of the write.
// It returns nil otherwise, at most Options.Grace after it was told to end; the
// end of stdin alone lets it finish what was read first.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer, o Options) error {
	s := newServer(o)
	lost := make(chan error, 1) // the first loss is kept; later ones say the same
	lose := func(err error) {
		s.announceEnd(err)
		select {
		case lost <- err:
		default:
		}
	}
	s.out = newEmitter(stdout, o.ASCII, o.Journal.Path(), func(err error) { lose(fmt.Errorf("write stdout: %w", err)) })
	unwatch := watchReader(stdout, func() { lose(ErrNoReader) })
	defer unwatch()
	s.out.post(protocol.Ready{SessionID: s.sessionID, Model: s.model.Model, ProtocolVersion: protocol.Version})
	s.sendUpdate(s.out.post)

	done := make(chan struct{})   // closed when the worker and all others who write have ended
	worked := make(chan struct{}) // closed when no turn will run any more
	if s.Parent != nil {
		s.backgroundTasks.Go(func() { s.relay(worked) })
	}
	go func() { defer close(done); s.runJobs(); close(worked); s.backgroundTasks.Wait(); <-s.out.out.Close() }()
	input := make(chan error, 1)  // how stdin ended
	unread := make(chan struct{}) // closed when stdin is read no more
	go func() { defer close(unread); input <- s.read(stdin) }()

	var err error
	select {
	case err = <-lost:
	case <-ctx.Done():
	case end := <-input:
		<-unread
		if !errors.Is(end, errShutdown) {
			if end != nil && !errors.Is(end, io.EOF) {
				s.log.Warn("stdin broke", zap.Error(end))
			}
			s.drain()
			select {
			case <-done:
			case err = <-lost:
			case <-ctx.Done():
			}
			select { // the last frames may have been lost just now
			case err = <-lost:
			default:
			}
		}
	}
	s.stop()
	grace := s.Grace
	if err != nil {
		grace = lostGrace // nobody waits for what is left but the journal
	}
	s.join(done, unread, stdin, grace)
	return err
}

// relay passes on what the tools ask the parent until no turn will run any more.
func (s *server) relay(worked <-chan struct{}) {
	pass := func(e protocol.Event) {
		s.answering.Lock()
		defer s.answering.Unlock()
		s.out.post(e)
	}
	rest := func() {
		for {
			select {
			case e := <-s.Parent.Events():
				pass(e)
			default:
				return
			}
		}
	}
	for {
		select {
		case e := <-s.Parent.Events():
			pass(e)
		case done := <-s.flush:
			rest()
			s.answering.Lock()
			close(done) // a call that was answered ends after the response to its answer
			s.answering.Unlock()
		case <-worked:
			rest()
			return
		}
	}
}

// settle returns once what the tools have asked and told the parent so far is
// on its way before any frame that is sent after it. The worker alone calls it.
func (s *server) settle() {
	if s.Parent == nil {
		return
	}
	done := make(chan struct{})
	s.flush <- done
	<-done
}

// announceEnd tells the program, once, that the end has begun.
func (s *server) announceEnd(err error) {
	if s.Ending != nil {
		s.once.Do(func() { s.Ending(err) })
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
			s.log.Warn("gave up waiting for the turn in flight", zap.Duration("grace", grace))
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

// server is one running child.
type server struct {
	Options
	out *emitter
	log *zap.Logger

	conversation    *conversation.Conversation
	backgroundTasks sync.WaitGroup       // lists of models, and the relay
	wake            chan struct{}        // tells the worker that active or closed changed; holds one
	flush           chan chan<- struct{} // asks the relay to say when it has passed all on
	once            sync.Once            // for Options.Ending

	// answering is held while an answer of the parent is acted on and responded
	// to: what follows from it is told after that.
	answering sync.Mutex

	ctx    context.Context // of all turns; ends with stop
	cancel context.CancelCauseFunc

	mu        sync.Mutex // guards all below
	model     Selected
	prompt    prompt.Prompt
	notes     []transcript.Note // replaced, never changed in place
	sessionID string
	usage     protocol.TurnUsage            // of the session
	byModel   map[string]protocol.TurnUsage // the parts of usage, by Selected.name
	turns     uint64
	halted    bool
	lastAt    time.Time
	active    *job   // what runs, or is about to
	queue     []*job // what runs after it; at most maxQueue
	closed    bool   // nothing more is accepted
	lookups   int    // of backgroundTasks
	// serverCommands are of backgroundTasks, too.
	serverCommands int
}

func newServer(o Options) *server {
	if o.MaxIterations <= 0 {
		o.MaxIterations = DefaultMaxIterations
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Start.ContextWindow == 0 {
		o.Start.ContextWindow = DefaultContextWindow
	}
	if o.CompactAt == 0 {
		o.CompactAt = DefaultCompactAt
	}
	if o.MaxMessages <= 0 {
		o.MaxMessages = DefaultMaxMessages
	}
	if o.Images == nil {
		o.Images = images.New(images.Options{Dir: images.Dir(o.Journal.Path())})
	}
	s := &server{
		Options: o, log: o.Log, model: o.Start,
		wake:   make(chan struct{}, 1),
		flush:  make(chan chan<- struct{}),
		prompt: o.Prompt, notes: o.State.Notes,
		sessionID: o.State.SessionID, usage: o.State.Usage, byModel: maps.Clone(o.State.ByModel), turns: o.State.Turns, lastAt: o.State.LastActionAt,
		halted: string(o.State.LastOutcome) == string(protocol.StopMaxIterations),
	}
	around := conversation.Preamble{
		System: o.Prompt.Text, Model: o.Start.name(), ContextWindow: o.Start.ContextWindow, MaxMessages: o.MaxMessages,
	}
	around.Tools = s.tools()
	s.conversation = conversation.New(o.State.Messages, around)
	s.State.Messages = nil // they are the conversation's now
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// read takes commands until stdin ends or one says shutdown. It never waits
// for a turn nor for whoever reads stdout, so that abort, ping and shutdown are
// acted on at once.
func (s *server) read(stdin io.Reader) error {
	lines := frame.NewReader(stdin)
	for {
		line, err := lines.Next()
		if _, tooLarge := errors.AsType[*frame.TooLargeError](err); tooLarge {
			s.out.post(refusal("", err.Error()))
			continue
		}
		if err != nil {
			return err
		}
		command, err := protocol.DecodeCommand(line)
		if err != nil {
			s.out.post(refusal(commandID(err), err.Error()))
			continue
		}
		if _, ok := command.(protocol.Shutdown); ok {
			s.stop()
			return errShutdown
		}
		if err := checkID(command); err != nil {
			s.out.post(refusal("", err.Error()))
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
	if len(id) > maxIDLength {
		return fmt.Errorf("%s: id is longer than %d bytes", c.Name(), maxIDLength)
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
	if len(id) > maxIDLength {
		return ""
	}
	return id
}

// drain lets what was accepted finish and accepts nothing more.
func (s *server) drain() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
}

// stop ends the turn that runs and drops those that wait. It does not wait for
// whoever reads stdout.
func (s *server) stop() {
	s.announceEnd(nil)
	s.mu.Lock()
	s.closed = true
	for _, j := range s.queue { // under the lock: the worker has not ended, so that posts are taken
		s.out.post(refusal(j.command.Ident(), errShutdown.Error()))
	}
	s.queue = nil
	s.mu.Unlock()
	s.cancel(errShutdown)
	s.signal()
}

func (s *server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
