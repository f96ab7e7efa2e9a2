package supervisortest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/supervisor"
)

const (
	writeTimeout  = 10 * time.Second // of Send to a deaf child
	ladder        = 5 * time.Second  // the polite rungs of Stop together
	shutdownGrace = 2 * time.Second  // for the running turn to end by itself
	buffered      = 64               // commands and frames under way; a full pipe blocks
)

// Child is one incarnation, as its script sees it. All methods may be called
// from any goroutine; once the child is gone they do nothing.
type Child struct {
	launcher *Launcher
	record   *record
	spec     supervisor.Spec
	play     Play
	number   int
	in       chan protocol.Command
	out      chan protocol.Frame
	gone     chan struct{} // closed at the end
	work     sync.WaitGroup

	toolOutput atomic.Bool // that of tools is wanted

	mu       sync.Mutex // guards all below
	exit     *supervisor.Exit
	model    string
	settings protocol.TurnSettings
	turn     *string       // id of the running turn, nil if none runs
	abort    chan struct{} // of the running turn, nil if none runs
	aborted  bool
	playing  chan struct{} // closed when the play of the running turn has returned

	questions int                              // asked so far
	open      map[string]chan protocol.Command // those without an answer, by id
}

func newChild(l *Launcher, r *record, s supervisor.Spec, play Play, n int) *Child {
	return &Child{
		launcher: l, record: r, spec: s, play: play, number: n, model: "echo",
		in: make(chan protocol.Command, buffered), out: make(chan protocol.Frame, buffered),
		gone: make(chan struct{}),
	}
}

// serve reads commands until the child is gone.
func (c *Child) serve() {
	for {
		select {
		case cmd := <-c.in:
			c.act(cmd)
		case <-c.gone:
			return
		}
	}
}

func (c *Child) act(cmd protocol.Command) {
	if p, ok := cmd.(protocol.Prompt); ok {
		playing := make(chan struct{})
		if !c.begin(p.ID, playing) {
			c.Emit(protocol.Error{ID: &p.ID, Message: "another prompt is in flight"})
			return
		}
		play := c.play.Prompt
		if play == nil {
			play = Echo
		}
		c.work.Go(func() {
			defer close(playing)
			play(c, p)
		})
		return
	}
	if c.play.Command != nil && c.play.Command(c, cmd) {
		return
	}
	c.answer(cmd)
}

// begin marks a turn as running; false if one does already.
func (c *Child) begin(id string, playing chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abort != nil {
		return false
	}
	c.turn, c.abort, c.aborted, c.playing = &id, make(chan struct{}), false, playing
	return true
}

// Number counts the agent's incarnations from 1.
func (c *Child) Number() int { return c.number }

// Spec is what the child was launched with.
func (c *Child) Spec() supervisor.Spec { return c.spec }

// Gone is closed once the child has ended.
func (c *Child) Gone() <-chan struct{} { return c.gone }

// Turn is what get_state says of turns: whether one runs, and its id.
func (c *Child) Turn() (streaming bool, id *string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abort != nil, c.turn
}

// Aborted is closed when the running turn is to be cancelled.
func (c *Child) Aborted() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abort == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return c.abort
}

func (c *Child) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abort != nil && !c.aborted {
		c.aborted = true
		close(c.abort)
	}
}

// Emit writes an event.
func (c *Child) Emit(e protocol.Event) {
	line, err := protocol.AppendEvent(nil, e)
	if err != nil {
		panic(fmt.Sprintf("supervisortest: %v", err))
	}
	c.send(protocol.Frame{Type: e.Name(), Raw: line})
}

// Line writes a line as it is. It must be a frame.
func (c *Child) Line(line string) {
	f, err := protocol.NewFrame([]byte(line))
	if err != nil {
		panic(fmt.Sprintf("supervisortest: %v", err))
	}
	c.send(f)
}

func (c *Child) send(f protocol.Frame) {
	select {
	case <-c.gone:
		return
	default:
	}
	select {
	case c.out <- f:
	case <-c.gone:
	}
}

// Say writes a text_delta.
func (c *Child) Say(text string) {
	c.Emit(protocol.MessageUpdate{Event: protocol.TextDelta{Delta: text}})
}

// Respond answers a command with the members of a struct or map.
func (c *Child) Respond(cmd protocol.Command, members any) {
	body, err := json.Marshal(members)
	if err != nil {
		panic(fmt.Sprintf("supervisortest: %v", err))
	}
	c.Emit(protocol.Response{ID: cmd.Ident(), Command: cmd.Name(), Body: body})
}

// Finish ends the running turn: agent_end and the response, both saying
// whether it was aborted. One token is used for each message.
func (c *Child) Finish(p protocol.Prompt, reply string) {
	c.FinishWith(p, reply, protocol.StopCompleted)
}

// FinishWith is Finish for a turn that, unless it was aborted, ends for that reason.
func (c *Child) FinishWith(p protocol.Prompt, reply string, stop protocol.StopReason) {
	c.remember(p, reply)
	c.mu.Lock()
	aborted := c.aborted
	c.mu.Unlock()
	usage := protocol.TurnUsage{InputTokens: 1, OutputTokens: 1, Model: new(c.modelName())}
	if aborted {
		c.Emit(protocol.AgentEnd{Usage: usage, StopReason: protocol.StopAborted, TurnID: p.ID})
		c.endTurn()
		c.Respond(p, map[string]bool{"ok": true, "cancelled": true})
		return
	}
	c.Emit(protocol.AgentEnd{Usage: usage, StopReason: stop, TurnID: p.ID})
	c.endTurn()
	c.Respond(p, map[string]bool{"ok": true})
}

// Fail ends the running turn as one that failed; "" gives no reason.
func (c *Child) Fail(p protocol.Prompt, message string) { c.FailFor(p, message, protocol.Refusal{}) }

// FailFor is Fail with the Reason and the RetryAfterMS of no.
func (c *Child) FailFor(p protocol.Prompt, message string, no protocol.Refusal) {
	members := map[string]any{"ok": false}
	if no.Reason != "" {
		members["reason"], members["retry_after_ms"] = no.Reason, no.RetryAfterMS
	}
	if message != "" {
		c.Emit(protocol.Error{ID: &p.ID, Message: message})
		members["error"] = message
	}
	c.Emit(protocol.AgentEnd{StopReason: protocol.StopError, TurnID: p.ID})
	c.endTurn()
	c.Respond(p, members)
}

// Refuse answers a prompt with an error alone, as a child does that will not
// run it.
func (c *Child) Refuse(p protocol.Prompt, message string) {
	c.endTurn()
	c.Emit(protocol.Error{ID: &p.ID, Message: message})
}

func (c *Child) endTurn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn, c.abort = nil, nil
}

// Sleep waits; false if the turn was aborted or the child ended meanwhile.
func (c *Child) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.Aborted():
	case <-c.gone:
	}
	return false
}

// Hang waits until the child is gone, deaf to aborts.
func (c *Child) Hang() { <-c.gone }

// Crash ends the child as if its process had ended so. What it wrote before is
// still read.
func (c *Child) Crash(exit supervisor.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit == nil {
		c.exit = &exit
		close(c.gone)
	}
}

// Messages is the agent's conversation over all its incarnations.
func (c *Child) Messages() []protocol.Message {
	c.launcher.mu.Lock()
	defer c.launcher.mu.Unlock()
	return slices.Clone(c.record.messages)
}

func (c *Child) remember(p protocol.Prompt, reply string) {
	c.launcher.mu.Lock()
	defer c.launcher.mu.Unlock()
	c.record.messages = append(c.record.messages,
		protocol.Message{Role: protocol.RoleUser, Content: p.Message, TurnID: p.ID},
		protocol.Message{Role: protocol.RoleAssistant, Content: reply, TurnID: p.ID})
}

func (c *Child) modelName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.model
}

// conn is a Child as the supervisor sees it.
type conn Child

func (c *conn) child() *Child { return (*Child)(c) }

func (c *conn) Ready() protocol.Ready {
	return protocol.Ready{SessionID: "session-" + c.spec.ID, Model: c.child().modelName(), ProtocolVersion: protocol.Version}
}

// PID is made up: 1000 and the number of the incarnation.
func (c *conn) PID() int { return 1000 + c.number }

// Usage is made up: a second for each incarnation, and a MiB while it lives.
func (c *conn) Usage() supervisor.Usage {
	u := supervisor.Usage{CPU: time.Duration(c.number) * time.Second, MemoryBytes: 1 << 20}
	select {
	case <-c.gone:
		u.MemoryBytes = 0
	default:
	}
	return u
}

func (c *conn) Send(cmd protocol.Command) error {
	line, err := protocol.AppendCommand(nil, cmd)
	if err == nil && len(line) >= frame.MaxWritten {
		err = &frame.TooLargeError{Limit: frame.MaxWritten}
	}
	if err != nil {
		return &supervisor.CommandError{Command: cmd.Name(), Err: err}
	}
	in := c.in
	if c.play.Deaf {
		in = nil
	}
	timeout := time.NewTimer(writeTimeout)
	defer timeout.Stop()
	select {
	case <-c.gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case in <- cmd:
		return nil
	case <-c.gone:
		return io.ErrClosedPipe
	case <-timeout.C:
		return fmt.Errorf("stdin not read in %s: %w", writeTimeout, os.ErrDeadlineExceeded)
	}
}

func (c *conn) Recv() (protocol.Frame, error) {
	select {
	case f := <-c.out:
		return f, nil
	case <-c.gone:
	}
	select {
	case f := <-c.out:
		return f, nil
	default:
		return protocol.Frame{}, io.EOF
	}
}

func (c *conn) Stop(ctx context.Context) supervisor.Exit {
	if ctx.Err() == nil {
		c.child().cancel()
		polite := time.NewTimer(min(c.play.StopAfter, ladder))
		defer polite.Stop()
		select {
		case <-polite.C:
			if c.play.StopAfter <= ladder {
				c.windUp(ctx)
			}
		case <-ctx.Done():
		case <-c.gone:
		}
	}
	c.child().Crash(supervisor.Exit{Code: -1, Signal: "killed"})
	c.work.Wait()
	return c.Exit()
}

// windUp lets an aborted turn end by itself, then exits with status 0.
func (c *conn) windUp(ctx context.Context) {
	c.mu.Lock()
	playing := c.playing
	c.mu.Unlock()
	if playing != nil {
		timeout := time.NewTimer(shutdownGrace)
		defer timeout.Stop()
		select {
		case <-playing:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		case <-c.gone:
			return
		}
	}
	c.child().Crash(supervisor.Exit{})
}

func (c *conn) Done() <-chan struct{} { return c.gone }

// Exit says how the child ended; it waits for that.
func (c *conn) Exit() supervisor.Exit {
	<-c.gone
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.exit
}

var _ supervisor.Conn = (*conn)(nil)

// ToolOutputWanted reports whether the parent wants the output of running tools.
func (c *Child) ToolOutputWanted() bool { return c.toolOutput.Load() }
