package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/child/images"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Options say what an agent of another make is.
type Options struct {
	Program protocol.AgentProgram
	Driver  Driver
	Start   Start
	// Cwd is where the program works, Env what its environment has beside the usual, as KEY=VALUE.
	Cwd string
	Env []string
	// Model and System are what was asked for; "" leaves it to the program.
	Model, System string
	Client        Client
	// SessionID is that of the journal, and Saved what the journal has of the program's conversation;
	// nil if nothing. Began says that the journal has messages.
	SessionID string
	Saved     *transcript.ProgramSession
	Began     bool
	// Images reads the images of prompts; may be nil.
	Images  *images.Store
	Version string    // of nexus
	Stderr  io.Writer // of the program; does not wait
	Log     *zap.Logger
}

// Agent is an agent of another make. Run is called once at a time; all else is safe for
// concurrent use.
type Agent struct {
	options Options
	gone    chan struct{} // closed when the program has ended by itself
	watches sync.WaitGroup

	mu        sync.Mutex // guards all below
	session   Session    // nil after Reset and Outgrow, until the next turn
	outgrown  Session    // that Outgrow ended; nil once another has begun
	resumed   protocol.Resumed
	reason    string // why it is not ResumedByProgram
	lost      bool   // the program is to be given the conversation before the next prompt
	saved     string // the program's id of the conversation that the journal has
	sessionID string // of the journal
	model     string // that was asked for
	ended     error  // how the program ended by itself
	closed    bool
}

// Open starts the program. An error says what went wrong, and nothing is left then.
func Open(ctx context.Context, o Options) (*Agent, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	a := &Agent{options: o, gone: make(chan struct{}), sessionID: o.SessionID, model: o.Model}
	resume := ""
	if o.Saved != nil && o.Saved.Of == o.SessionID {
		resume = o.Saved.ID
	}
	if err := a.open(ctx, resume, o.Began); err != nil {
		return nil, fmt.Errorf("agent of kind %s: %w", o.Program.Kind, err)
	}
	return a, nil
}

// open begins a session: by the program's own means, if it has any of the conversation that began.
func (a *Agent) open(ctx context.Context, resume string, began bool) error {
	o := a.options
	opening := Opening{
		Launcher: Launcher{start: o.Start, command: o.Program.Command, name: o.Program.Name(), dir: o.Cwd, env: o.Env, stderr: o.Stderr},
		Cwd:      o.Cwd, Resume: resume, Model: a.askedModel(), System: o.System, Client: o.Client, Version: o.Version, Log: o.Log,
	}
	how, reason := protocol.ResumedNew, ""
	session, err := o.Driver.Open(ctx, opening)
	switch {
	case err == nil && resume != "":
		how = protocol.ResumedByProgram
	case errors.Is(err, ErrNotResumed):
		reason = err.Error()
		opening.Resume = ""
		session, err = o.Driver.Open(ctx, opening)
	case began && err == nil && !session.About().Stateless:
		reason = "the program has no way to go on with a conversation, or had not named it yet"
	}
	if err != nil {
		return err
	}
	if reason != "" {
		how = protocol.ResumedByContext
		o.Log.Warn("the program does not go on with its conversation: it is given what nexus kept of it", zap.String("reason", reason))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session, a.resumed, a.reason, a.lost, a.saved = session, how, reason, how == protocol.ResumedByContext, resume
	if program := session.Program(); program != nil {
		a.watches.Go(func() { a.watch(session, program) })
	}
	return nil
}

// watch waits for the end of a program.
func (a *Agent) watch(session Session, program *Program) {
	<-program.Done()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == session && !a.closed && a.ended == nil {
		a.ended = program.End()
		close(a.gone)
	}
}

// Gone is closed when the program has ended by itself; Err says how.
func (a *Agent) Gone() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.gone
}

// Err is how the program has ended by itself; nil if it has not.
func (a *Agent) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// Reset begins another conversation, under another session of the journal: with the next turn, in
// a new process.
func (a *Agent) Reset(sessionID string) {
	a.mu.Lock()
	session := a.session
	a.session, a.sessionID, a.lost, a.outgrown = nil, sessionID, false, nil
	a.mu.Unlock()
	if session != nil {
		a.watches.Go(session.Close)
	}
}

// Outgrow says that the program is being killed because it can do more than it may do now. Its turn fails,
// and the next one starts it again: it goes on with the conversation by its own means, if it has any. It does not wait.
func (a *Agent) Outgrow() {
	if a == nil { // it is not open yet, and ends by itself
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if session := a.session; session != nil && !a.closed {
		a.session, a.outgrown = nil, session
		a.watches.Go(session.Close)
	}
}

// errOutgrown is the end of the turn of a program that Outgrow ended.
var errOutgrown = &TurnError{Message: "the program was ended, because the permissions were changed: the next message starts it again within these"}

// Close ends the program.
func (a *Agent) Close() error {
	a.mu.Lock()
	session := a.session
	a.closed = true
	a.mu.Unlock()
	if session != nil {
		session.Close()
	}
	a.watches.Wait()
	return nil
}

// State is what is known of the program. Commands are those of the caller.
func (a *Agent) State() protocol.ProgramState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := protocol.ProgramState{AgentProgram: a.options.Program, Resumed: a.resumed, ResumeReason: a.reason}
	if a.session != nil {
		about := a.session.About()
		s.Name, s.Version, s.Session = about.Name, about.Version, about.Session
	}
	return s
}

// Model is the model that the program uses, or that was asked for; "" if neither is known.
func (a *Agent) Model() string {
	a.mu.Lock()
	session := a.session
	a.mu.Unlock()
	if session != nil {
		if about := session.About(); about.Model != "" {
			return about.Model
		}
	}
	return a.askedModel()
}

func (a *Agent) askedModel() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.model
}

// Kind is the name of the agent's kind.
func (a *Agent) Kind() string { return a.options.Program.Kind }

// Setter is the program's way to change its model; nil if it has none now.
func (a *Agent) Setter() ModelSetter {
	a.mu.Lock()
	defer a.mu.Unlock()
	setter, _ := a.session.(ModelSetter)
	return setter
}

// SetModel has the program use another model, also in later processes.
func (a *Agent) SetModel(ctx context.Context, model string) error {
	setter := a.Setter()
	if setter == nil {
		return fmt.Errorf("the program %s has no way to change its model", a.options.Program.Name())
	}
	if err := setter.SetModel(ctx, model); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.model = model
	return nil
}

// current is the session for a turn, opened anew after Reset.
func (a *Agent) current(ctx context.Context) (Session, error) {
	a.mu.Lock()
	session, ended := a.session, a.ended
	outgrown, saved := a.outgrown, a.saved
	a.mu.Unlock()
	switch {
	case ended != nil:
		return nil, ended
	case session != nil:
		return session, nil
	}
	resume := ""
	if outgrown != nil {
		outgrown.Close() // two at once could write the same conversation
		resume = saved
	}
	if err := a.open(ctx, resume, outgrown != nil); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outgrown = nil
	return a.session, nil
}

// isOutgrown reports whether a session was ended by Outgrow.
func (a *Agent) isOutgrown(session Session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return session != nil && a.outgrown == session
}

// Turn is what a turn is run with.
type Turn struct {
	turn.Input
	Conversation Conversation
	Journal      turn.Recorder
	Listener     turn.Listener
}

// Run runs one turn to its end. It returns soon after the program has ended it, which ctx has it
// asked for. An error of the result that wraps ErrEnded is the program's end: the turn is not over in the
// journal then, as if this process had been killed.
func (a *Agent) Run(ctx context.Context, t Turn) turn.Result {
	r := newRecorder(a, t)
	session, err := a.current(ctx)
	if err == nil {
		err = r.begin()
	}
	if err == nil {
		err = r.save(session.About().Session)
	}
	if err != nil {
		return failed(ctx, err, protocol.TurnUsage{})
	}
	text := t.Message
	if before := a.takeContext(r); before != "" {
		text = before + text
	}
	done, err := session.Prompt(ctx, Prompt{TurnID: t.ID, Text: text, Images: a.images(t.Images)}, r)
	if err != nil && a.isOutgrown(session) {
		err = errOutgrown
	}
	if errors.Is(err, ErrEnded) {
		r.cutOff()
		return turn.Result{Stop: protocol.StopError, Err: err}
	}
	if err == nil {
		err = r.save(session.About().Session)
	}
	if saved := r.end(err != nil || done.Stop == protocol.StopAborted, done.Usage); err == nil {
		err = saved
	}
	if err != nil {
		return failed(ctx, err, done.Usage)
	}
	return turn.Result{Stop: done.Stop, Usage: done.Usage}
}

func failed(ctx context.Context, err error, usage protocol.TurnUsage) turn.Result {
	if ctx.Err() != nil {
		return turn.Result{Stop: protocol.StopAborted, Usage: usage}
	}
	return turn.Result{Stop: protocol.StopError, Usage: usage, Err: err}
}

// takeContext is the conversation so far, where the program is to be given it, and tells of it.
func (a *Agent) takeContext(r *recorder) string {
	a.mu.Lock()
	lost, reason := a.lost, a.reason
	a.lost = false
	a.mu.Unlock()
	if !lost {
		return ""
	}
	text, given := conversationText(r.before)
	if given.Messages == 0 {
		return ""
	}
	given.Reason = strings.ToValidUTF8(reason, "\uFFFD")
	r.Listener.Emit(given)
	return text
}

// images are the bytes of those that can be read.
func (a *Agent) images(all []protocol.Image) (read []Image) {
	for _, image := range all {
		data, err := a.options.Images.Get(image)
		if err != nil {
			a.options.Log.Warn("an image is not given to the program", zap.Error(err))
			continue
		}
		read = append(read, Image{MIME: image.Mime, Data: data})
	}
	return read
}
