package acp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
)

// session implements [foreign.Session] and [rpcpeer.Handler].
type session struct {
	client        foreign.Client
	log           *zap.Logger
	peer          *rpcpeer.Peer
	name, version string // of the program
	images        bool   // it takes them

	system string // goes before the first prompt; of Prompt, which is called once at a time

	mu     sync.Mutex // guards all below
	id     string     // the program's, of the conversation
	models models
	cost   *float64 // of the conversation so far, in US dollars; nil if it is not known
	turn   *turn    // that runs; nil between turns
	// between are the last messages of each of the settings that the program told of while no turn
	// ran: the next one begins with them.
	between map[string]string
}

// About implements [foreign.Session].
func (s *session) About() foreign.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return foreign.About{Name: s.name, Version: s.version, Session: s.id, Model: s.models.current}
}

// Program implements [foreign.Session].
func (s *session) Program() *foreign.Program { return s.peer.Program() }

// Close implements [foreign.Session].
func (s *session) Close() { s.peer.Close() }

// block is a part of a prompt.
type block struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	MIME string `json:"mimeType,omitempty"`
	Data []byte `json:"data,omitempty"` // base64
}

type promptParams struct {
	Session string  `json:"sessionId"`
	Prompt  []block `json:"prompt"`
}

type sessionParams struct {
	Session string `json:"sessionId"`
}

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	aborted := foreign.Done{Stop: protocol.StopAborted}
	if ctx.Err() != nil {
		return aborted, nil
	}
	for _, raw := range s.takeBetween() {
		sink.Foreign([]byte(raw))
	}
	t := newTurn(ctx, p.TurnID, sink)
	id := s.begin(t)
	pending, err := s.peer.Send("session/prompt", promptParams{id, s.blocks(p)})
	if err != nil {
		s.over()
		return foreign.Done{}, err
	}
	s.system = ""
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // not before the prompt is sent: else the program takes it for nothing
		defer close(told)
		_ = s.peer.Notify("session/cancel", sessionParams{id}) // of a program that is gone, the reader tells
	})
	result, err := pending.Wait(context.WithoutCancel(ctx))
	if !stop() {
		<-told
	}
	s.over() // if the program has ended: the reader calls no sink any more
	if errors.Is(err, foreign.ErrEnded) {
		return foreign.Done{}, err
	}
	usage := t.usage(result)
	switch {
	case ctx.Err() != nil:
		return foreign.Done{Stop: protocol.StopAborted, Usage: usage}, nil
	case err != nil:
		return foreign.Done{Usage: usage}, turnError(err)
	}
	reason := result.Get("stopReason").Str
	if stop, known := stops[reason]; known {
		return foreign.Done{Stop: stop, Usage: usage}, nil
	}
	return foreign.Done{Usage: usage}, &foreign.TurnError{Message: fmt.Sprintf("the program ended the turn for a reason that is not known: %.64q", reason)}
}

// stops are the protocol's stop reasons.
var stops = map[string]protocol.StopReason{
	"end_turn":          protocol.StopCompleted,
	"max_tokens":        protocol.StopMaxTokens,
	"max_turn_requests": protocol.StopMaxIterations,
	"refusal":           protocol.StopContentFilter,
	"cancelled":         protocol.StopAborted,
}

// turnError is what an error of session/prompt means.
func turnError(err error) error {
	e := &foreign.TurnError{Message: "the program failed the turn: " + err.Error()}
	if wantsLogin(err) {
		e.Reason = protocol.Credentials
	}
	return e
}

// blocks are the prompt, as far as the program takes it.
func (s *session) blocks(p foreign.Prompt) []block {
	text := p.Text
	if s.system != "" {
		text = foreign.Instructed(s.system, text)
	}
	all := []block{{Type: "text", Text: text}}
	for _, image := range p.Images {
		if s.images {
			all = append(all, block{Type: "image", MIME: image.MIME, Data: image.Data})
		}
	}
	return all
}

func (s *session) begin(t *turn) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = t
	return s.id
}

// over ends the turn.
func (s *session) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = nil
}

// running is the turn that runs; nil between turns.
func (s *session) running() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// Answered implements [rpcpeer.Handler]: what comes after the end of a turn is not of it.
func (s *session) Answered(method string) {
	if method == "session/prompt" {
		s.over()
	}
}

// Take implements [rpcpeer.Handler].
func (s *session) Take(m rpcpeer.Message) {
	update := m.Params.Get("update")
	t, ours := s.learn(m.Params.Get("sessionId").Str, update)
	if t == nil {
		s.keepBetween(update.Get("sessionUpdate").Str, m.Raw)
		s.log.Debug("the program says something between turns", zap.String("method", m.Method), zap.String("update", update.Get("sessionUpdate").Str))
		return
	}
	switch {
	case !ours:
		t.sink.Foreign([]byte(m.Raw))
	case m.Method == "session/update":
		t.update(update, m.Raw)
	case m.Method == "session/request_permission":
		t.call(m.Params.Get("toolCall"))
	case m.Method == "fs/read_text_file", m.Method == "fs/write_text_file":
	default:
		t.sink.Foreign([]byte(m.Raw))
	}
}

// keepBetween keeps what is not of one turn but of the conversation.
func (s *session) keepBetween(kind, raw string) {
	switch kind {
	case "available_commands_update", "current_mode_update", "config_option_update", "session_info_update":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.between[kind] = raw
	}
}

func (s *session) takeBetween() (messages []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(s.between)) {
		messages = append(messages, s.between[kind])
	}
	clear(s.between)
	return messages
}

// learn keeps what an update of a session says, whether a turn runs or not, and returns the turn that
// does. ours is false if it is of another session than the conversation, such as that of an agent
// that the program runs itself.
func (s *session) learn(of string, update gjson.Result) (t *turn, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of != "" && s.id != "" && of != s.id {
		return s.turn, false
	}
	switch update.Get("sessionUpdate").Str {
	case "config_option_update":
		s.models.read(update)
	case "usage_update":
		cost := update.Get("cost")
		if cost.Get("currency").Str != "USD" {
			break
		}
		amount, ok := foreign.Cost(cost.Get("amount"))
		if !ok {
			break
		}
		if s.turn != nil && s.cost != nil && amount >= *s.cost {
			s.turn.spend(amount - *s.cost)
		}
		s.cost = &amount
	}
	return s.turn, true
}
