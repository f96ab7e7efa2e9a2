package pi

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/jsonlines"
	"nexus.internal/protocol"
)

// session implements [foreign.Session], [foreign.ModelSetter] and [jsonlines.Handler].
type session struct {
	client foreign.Client
	log    *zap.Logger
	peer   *jsonlines.Peer

	mu     sync.Mutex // guards all below
	id     string     // the program's, of the conversation
	model  string
	models []protocol.Model
	last   uint64 // id of a command
	turn   *turn  // that runs; nil between turns
}

// About implements [foreign.Session].
func (s *session) About() foreign.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return foreign.About{Name: "pi", Session: s.id, Model: s.model}
}

// Program implements [foreign.Session].
func (s *session) Program() *foreign.Program { return s.peer.Program() }

// Close implements [foreign.Session].
func (s *session) Close() { s.peer.Close() }

// learn keeps what get_state says.
func (s *session) learn(state gjson.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := state.Get("sessionId").Str; id != "" {
		s.id = id
	}
	s.model = modelName(state.Get("model"))
}

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	if ctx.Err() != nil {
		return foreign.Done{Stop: protocol.StopAborted}, nil
	}
	t := &turn{ctx: ctx, id: p.TurnID, sink: sink, over: make(chan struct{})}
	s.mu.Lock()
	s.turn = t
	s.mu.Unlock()
	c := command{Type: "prompt", Message: strings.ToValidUTF8(p.Text, "\uFFFD")}
	for _, i := range p.Images {
		c.Images = append(c.Images, image{"image", i.Data, i.MIME})
	}
	_, err := s.call(context.WithoutCancel(ctx), c)
	if err != nil {
		s.end(t)
		if refused, ok := errors.AsType[*refusedError](err); ok {
			err = turnError(refused.Error())
		}
		return foreign.Done{}, err
	}
	if strings.HasPrefix(p.Text, "/") { // a command of an extension has no turn
		s.settle(t)
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		s.abort()
	})
	select {
	case <-t.over:
	case <-s.peer.Ended():
	}
	if !stop() {
		<-told
	}
	s.end(t) // if the program has ended: the reader calls no sink any more
	select {
	case <-t.over: // its last words
		return t.outcome()
	default:
		return foreign.Done{}, s.peer.End()
	}
}

// abort asks the program to cancel. It does not hear that before it has begun with the prompt: then
// the reader asks again.
func (s *session) abort() { _ = s.peer.Send(command{Type: "abort", ID: s.nextID()}) }

// end ends the turn.
func (s *session) end(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t {
		s.turn = nil
	}
}

// settle asks whether the turn is over: after agent_end the program may compact, or try again.
func (s *session) settle(t *turn) {
	id := s.nextID()
	s.mu.Lock()
	t.settling = id
	s.mu.Unlock()
	_ = s.peer.Send(command{Type: "get_state", ID: id})
}

// running is the turn that runs; nil between turns.
func (s *session) running() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// Take implements [jsonlines.Handler].
func (s *session) Take(m gjson.Result) {
	kind, t := m.Get("type").Str, s.running()
	switch kind {
	case "response":
		id := m.Get("id").Str
		if !s.peer.Answered(id, m) && t != nil && s.settles(t, id) && t.settled(m.Get("data")) {
			s.learn(m.Get("data"))
			s.end(t)
			close(t.over)
		}
		return
	case "extension_ui_request":
		s.asked(t, m)
		return
	}
	if t == nil {
		s.log.Debug("the program says something between turns", zap.String("type", kind))
		return
	}
	t.take(kind, m)
	switch kind {
	case "agent_start", "message_start":
		if t.ctx.Err() != nil {
			s.abort() // it was cancelled before it had begun
		}
	case "agent_end", "auto_retry_end", "compaction_end":
		if t.ended {
			s.settle(t)
		}
	}
}

// settles reports whether that is the id of the newest question whether the turn is over.
func (s *session) settles(t *turn, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && t.settling == id
}
