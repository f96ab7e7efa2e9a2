package claude

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
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

	mu        sync.Mutex // guards all below
	id        string     // the program's, of the conversation
	model     string
	version   string
	models    []protocol.Model
	refusal   string  // why the program did not start
	last      uint64  // id of a request of ours
	cost      float64 // of the process so far, in US dollars
	turn      *turn   // that runs; nil between turns
	tells     bool    // the program says which prompt it works on
	questions map[string]context.CancelFunc
}

// About implements [foreign.Session].
func (s *session) About() foreign.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return foreign.About{Name: "claude-code", Version: s.version, Session: s.id, Model: s.model}
}

// Program implements [foreign.Session].
func (s *session) Program() *foreign.Program { return s.peer.Program() }

// Close implements [foreign.Session].
func (s *session) Close() { s.peer.Close() }

func (s *session) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return "nexus-" + strconv.FormatUint(s.last, 10)
}

// userMessage is a prompt. The id is that which the program tells of.
type userMessage struct {
	Type    string `json:"type"`
	ID      string `json:"uuid"`
	Message struct {
		Role    string  `json:"role"`
		Content []block `json:"content"`
	} `json:"message"`
	Parent  *string `json:"parent_tool_use_id"`
	Session string  `json:"session_id"`
}

// block is a part of a prompt.
type block struct {
	Type   string  `json:"type"`
	Text   string  `json:"text,omitempty"`
	Source *source `json:"source,omitempty"`
}

type source struct {
	Type string `json:"type"`
	MIME string `json:"media_type"`
	Data []byte `json:"data"` // base64
}

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	if ctx.Err() != nil {
		return foreign.Done{Stop: protocol.StopAborted}, nil
	}
	t := newTurn(ctx, p.TurnID, uuid.NewString(), sink)
	m := userMessage{Type: "user", ID: t.prompt, Session: s.begin(t)}
	m.Message.Role = "user"
	m.Message.Content = []block{{Type: "text", Text: strings.ToValidUTF8(p.Text, "\uFFFD")}}
	for _, i := range p.Images {
		m.Message.Content = append(m.Message.Content, block{Type: "image", Source: &source{"base64", i.MIME, i.Data}})
	}
	if err := s.peer.Send(m); err != nil {
		s.over()
		return foreign.Done{}, err
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // not before the prompt is sent: else the program takes it for nothing
		defer close(told)
		s.interrupt()
	})
	var result gjson.Result
	select {
	case result = <-t.result:
	case <-s.peer.Ended():
	}
	if !stop() {
		<-told
	}
	s.over() // if the program has ended: the reader calls no sink any more
	if !result.Exists() {
		select {
		case result = <-t.result: // its last words
		default:
			return foreign.Done{}, s.peer.End()
		}
	}
	return t.outcome(result, s.spent(result))
}

// interrupt asks the program to cancel. It does not hear that before it has begun with the prompt:
// then the reader asks again.
func (s *session) interrupt() {
	_ = s.peer.Send(controlRequest{"control_request", s.nextID(), request{Subtype: "interrupt"}})
}

// spent is what a turn cost; nil if the program does not say. It tells of all of the process.
func (s *session) spent(result gjson.Result) *float64 {
	total, ok := foreign.Cost(result.Get("total_cost_usd"))
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := max(total-s.cost, 0)
	s.cost = total
	return &cost
}

func (s *session) begin(t *turn) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn, t.started = t, !s.tells
	return s.id
}

// over ends the turn.
func (s *session) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = nil
}

// running is the turn whose prompt the program works on; nil if there is none.
func (s *session) running() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == nil || !s.turn.started {
		return nil
	}
	return s.turn
}

// Take implements [jsonlines.Handler].
func (s *session) Take(m gjson.Result) {
	kind := m.Get("type").Str
	switch kind {
	case "control_response":
		response := m.Get("response")
		s.peer.Answered(response.Get("request_id").Str, response)
		return
	case "control_request":
		s.asked(m)
		return
	case "control_cancel_request":
		s.withdrawn(m.Get("request_id").Str)
		return
	case "command_lifecycle":
		s.lifecycle(m)
		return
	case "keep_alive":
		return
	case "system":
		s.learn(m)
	}
	t := s.running()
	switch {
	case t == nil && kind == "result" && m.Get("is_error").Bool():
		s.mu.Lock()
		s.refusal = failure(m)
		s.mu.Unlock()
	case t == nil:
		s.log.Debug("the program says something between turns", zap.String("type", kind))
	case kind == "result":
		s.over()
		t.result <- m
	default:
		if t.take(kind, m) && t.ctx.Err() != nil {
			s.interrupt() // it was cancelled before it had begun
		}
	}
}

// learn keeps what the program says of itself and of the conversation.
func (s *session) learn(m gjson.Result) {
	if m.Get("subtype").Str != "init" {
		return
	}
	id := m.Get("session_id").Str
	s.mu.Lock()
	if id != "" && !strings.HasPrefix(id, "-") { // which it would read as a flag, as --resume gives it back
		s.id = id
	}
	if model := m.Get("model").Str; model != "" {
		s.model = model
	}
	if version := m.Get("claude_code_version").Str; version != "" {
		s.version = version
	}
	s.mu.Unlock()
	if t := s.running(); t != nil && id != "" {
		t.sink.Named(id)
	}
}

// lifecycle notes when the program begins with a prompt. Programs that tell of that may begin turns of
// their own, too, whose results are not ours.
func (s *session) lifecycle(m gjson.Result) {
	s.mu.Lock()
	s.tells = true
	t := s.turn
	ours := t != nil && t.prompt == m.Get("command_uuid").Str
	begins := false
	if ours {
		state := m.Get("state").Str
		begins = state == "started"
		t.started = t.started && state != "queued" || begins
	}
	s.mu.Unlock()
	if begins && t.ctx.Err() != nil {
		s.interrupt()
	}
}

// failure is what a result says of an error.
func failure(result gjson.Result) string {
	var parts []string
	for _, e := range result.Get("errors").Array() {
		parts = append(parts, e.String())
	}
	if text := result.Get("result").Str; text != "" {
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("the program ended the turn with %.64q", result.Get("subtype").Str)
	}
	return strings.Join(parts, "; ")
}
