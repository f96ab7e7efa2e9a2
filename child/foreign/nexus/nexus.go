package nexus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/jsonlines"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxError bounds the text of an error, in bytes.
	maxError = 2 << 10
	// maxModels is how many models of a program are listed.
	maxModels = 1000
)

// Driver implements [foreign.Driver].
type Driver struct{}

// Open implements [foreign.Driver].
func (Driver) Open(ctx context.Context, o foreign.Opening) (foreign.Session, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	var arguments []string
	for _, a := range []struct{ flag, value string }{{"--continue", o.Resume}, {"--model", o.Model}, {"--system", o.System}} {
		if a.value != "" {
			arguments = append(arguments, a.flag, a.value)
		}
	}
	program, err := o.Launch(arguments...)
	if err != nil {
		return nil, err
	}
	s := &session{client: o.Client, log: o.Log, ready: make(chan struct{})}
	s.peer = jsonlines.Start(program, s, o.Log)
	if err := s.open(ctx, o.Resume); err != nil {
		s.peer.Close()
		return nil, err
	}
	return s, nil
}

// session implements [foreign.Session], [foreign.ModelSetter] and [jsonlines.Handler].
type session struct {
	client foreign.Client
	log    *zap.Logger
	peer   *jsonlines.Peer
	ready  chan struct{} // closed with the first frame

	mu      sync.Mutex // guards all below
	id      string     // of the program's session
	model   string
	version int64 // of the protocol that it speaks
	models  []protocol.Model
	last    uint64 // id of a command
	turn    *turn  // that runs; nil between turns
}

// turn is one prompt until its end. The reader alone uses it; Prompt reads it once over is closed.
type turn struct {
	ctx      context.Context // of the prompt
	id       string          // of the turn
	command  string          // the id of the prompt, on the wire
	sink     foreign.Sink
	over     chan struct{} // closed at its end
	question string        // the id of get_state, where an error does not say whether the turn goes on
	ended    bool          // agent_end came
	done     foreign.Done
	fault    *foreign.TurnError // nil if it did not fail
}

// open waits for ready. A program that has no such conversation says so on stderr, and ends.
func (s *session) open(ctx context.Context, resume string) error {
	select {
	case <-s.ready:
	case <-s.peer.Ended():
		err := s.peer.End()
		if resume != "" {
			return fmt.Errorf("%w: %w", foreign.ErrNotResumed, err)
		}
		return err
	case <-ctx.Done():
		return foreign.Silent(ctx, "the program does not say ready")
	}
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	if version != protocol.Version {
		return &protocol.VersionError{Got: uint32(version)}
	}
	answer, err := s.call(ctx, command{Type: "get_available_models"})
	if errors.Is(err, foreign.ErrEnded) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range answer.Get("models").Array() { // none if it does not tell
		if len(s.models) < maxModels {
			s.models = append(s.models, protocol.Model{
				Provider: m.Get("provider").Str, ModelID: m.Get("model_id").Str, ModelName: m.Get("model_name").Str, ContextWindow: m.Get("context_window").Uint(),
			})
		}
	}
	return nil
}

// command is one to the program.
type command struct {
	Type        string         `json:"type"`
	ID          string         `json:"id"`
	Message     *string        `json:"message,omitzero"`
	Attachments []struct{}     `json:"attachments,omitzero"`
	Model       string         `json:"model,omitempty"`
	RequestID   string         `json:"request_id,omitempty"`
	Decision    string         `json:"decision,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	CallID      string         `json:"call_id,omitempty"`
	Error       jsontext.Value `json:"error,omitempty"`
}

// call sends a command and returns its response.
func (s *session) call(ctx context.Context, c command) (gjson.Result, error) {
	c.ID = s.nextID()
	answer, err := s.peer.Call(ctx, c.ID, c.Type, c)
	switch {
	case err != nil:
		return gjson.Result{}, err
	case answer.Get("type").Str == "error":
		return gjson.Result{}, fmt.Errorf("%s: the program refuses: %s", c.Type, textcut.Clip(answer.Get("message").Str, maxError))
	case !answer.Get("ok").Bool():
		return gjson.Result{}, fmt.Errorf("%s: the program refuses: %s", c.Type, textcut.Clip(answer.Get("error").Str, maxError))
	}
	return answer, nil
}

func (s *session) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return "nexus-" + strconv.FormatUint(s.last, 10)
}

// About implements [foreign.Session].
func (s *session) About() foreign.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return foreign.About{Session: s.id, Model: s.model}
}

// Program implements [foreign.Session].
func (s *session) Program() *foreign.Program { return s.peer.Program() }

// Close implements [foreign.Session].
func (s *session) Close() { s.peer.Close() }

// SetModel implements [foreign.ModelSetter].
func (s *session) SetModel(ctx context.Context, model string) error {
	answer, err := s.call(ctx, command{Type: "set_model", Model: model})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.model = model; answer.Get("model").Str != "" {
		s.model = answer.Get("model").Str
	}
	return nil
}

// Models implements [foreign.ModelSetter].
func (s *session) Models() []protocol.Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]protocol.Model(nil), s.models...)
}

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	if ctx.Err() != nil {
		return foreign.Done{Stop: protocol.StopAborted}, nil
	}
	t := &turn{ctx: ctx, id: p.TurnID, command: s.nextID(), sink: sink, over: make(chan struct{})}
	s.mu.Lock()
	s.turn = t
	s.mu.Unlock()
	defer s.end(t)
	if err := s.peer.Send(command{Type: "prompt", ID: t.command, Message: &p.Text, Attachments: []struct{}{}}); err != nil {
		return foreign.Done{}, &foreign.TurnError{Message: err.Error()}
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_ = s.peer.Send(command{Type: "abort", ID: s.nextID()}) // of text that is ours
	})
	select {
	case <-t.over:
	case <-s.peer.Ended():
	}
	if !stop() {
		<-told
	}
	select {
	case <-t.over: // its last words
	default:
		return foreign.Done{}, s.peer.End()
	}
	if t.fault != nil {
		return t.done, t.fault
	}
	return t.done, nil
}

// end ends the turn: the reader calls its sink no more.
func (s *session) end(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t {
		s.turn = nil
	}
}

// running is the turn that runs; nil between turns.
func (s *session) running() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}
