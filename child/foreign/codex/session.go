package codex

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
)

// session implements [foreign.Session], [foreign.ModelSetter] and [rpcpeer.Handler].
type session struct {
	client foreign.Client
	log    *zap.Logger
	peer   *rpcpeer.Peer

	mu       sync.Mutex // guards all below
	id       string     // of the thread
	version  string     // of the program
	model    string
	models   []protocol.Model // none if the program does not say
	total    *tokens          // of the thread; nil if it is not known
	turn     *turn            // that runs; nil between turns
	finished string           // the program's id of the turn that ended last
}

// About implements [foreign.Session].
func (s *session) About() foreign.About {
	s.mu.Lock()
	defer s.mu.Unlock()
	return foreign.About{Name: "codex", Version: s.version, Session: s.id, Model: s.model}
}

// Program implements [foreign.Session].
func (s *session) Program() *foreign.Program { return s.peer.Program() }

// Close implements [foreign.Session].
func (s *session) Close() { s.peer.Close() }

// SetModel implements [foreign.ModelSetter]: the next turn names the model.
func (s *session) SetModel(_ context.Context, model string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.models) > 0 && !slices.ContainsFunc(s.models, func(m protocol.Model) bool { return m.ModelID == model }) {
		return fmt.Errorf("the program offers no model %q", model)
	}
	s.model = model
	return nil
}

// Models implements [foreign.ModelSetter].
func (s *session) Models() []protocol.Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.models)
}

type turnParams struct {
	Thread string  `json:"threadId"`
	Input  []input `json:"input"`
	Model  string  `json:"model,omitempty"`
}

// input is a part of a prompt.
type input struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	URL  string `json:"url,omitempty"`
}

type interruptParams struct {
	Thread string `json:"threadId"`
	Turn   string `json:"turnId"`
}

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	if ctx.Err() != nil {
		return foreign.Done{Stop: protocol.StopAborted}, nil
	}
	t := newTurn(ctx, p.TurnID, sink)
	params := s.begin(t)
	defer s.over(t)
	params.Input = []input{{Type: "text", Text: p.Text}}
	for _, image := range p.Images {
		params.Input = append(params.Input, input{Type: "image", URL: "data:" + image.MIME + ";base64," + base64.StdEncoding.EncodeToString(image.Data)})
	}
	result, err := s.peer.Call(context.WithoutCancel(ctx), "turn/start", params)
	if err != nil {
		if s.peer.Err() != nil {
			return foreign.Done{}, err
		}
		return foreign.Done{}, &foreign.TurnError{Message: "the program begins no turn: " + err.Error()}
	}
	interrupt := interruptParams{params.Thread, result.Get("turn.id").Str}
	cancelled := ctx.Done()
	for {
		select {
		case <-cancelled:
			cancelled = nil
			_, _ = s.peer.Send("turn/interrupt", interrupt) // of a program that is gone, the reader tells
		case <-t.started: // a turn that had not begun may not have heard it
			if ctx.Err() != nil {
				_, _ = s.peer.Send("turn/interrupt", interrupt)
			}
		case <-t.ended:
			return t.outcome(ctx)
		case <-s.peer.Ended():
			return foreign.Done{}, s.peer.Err()
		}
	}
}

func (s *session) begin(t *turn) turnParams {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.base = s.total
	s.turn = t
	return turnParams{Thread: s.id, Model: s.model}
}

// over ends a turn, unless that was done.
func (s *session) over(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t {
		s.turn = nil
	}
}

// Answered implements [rpcpeer.Handler].
func (*session) Answered(string) {}

// Take implements [rpcpeer.Handler].
func (s *session) Take(m rpcpeer.Message) {
	s.mu.Lock()
	t, thread := s.turn, m.Params.Get("threadId").Str
	ours := thread == "" || thread == s.id
	of := cmp.Or(m.Params.Get("turnId").Str, m.Params.Get("turn.id").Str)
	if ours && of != "" && of == s.finished { // what it says late, or again, is of no turn that runs
		t = nil
	}
	if ours && t != nil && m.Method == "turn/completed" {
		s.finished = of
	}
	if ours && m.Method == "thread/tokenUsage/updated" {
		total, last := readTokens(m.Params.Get("tokenUsage.total")), readTokens(m.Params.Get("tokenUsage.last"))
		if t != nil {
			t.spend(total, last)
		}
		s.total = &total
	}
	s.mu.Unlock()
	switch {
	case t == nil:
		s.log.Debug("the program says something between turns", zap.String("method", m.Method))
	case !ours:
		t.sink.Foreign([]byte(m.Raw))
	case m.Method == "turn/completed":
		s.over(t)
		t.end(m.Params.Get("turn"))
	default:
		t.take(m)
	}
}

// tokens are counts of a thread.
type tokens struct{ input, cached, written, output uint64 }

func readTokens(u gjson.Result) tokens {
	return tokens{u.Get("inputTokens").Uint(), u.Get("cachedInputTokens").Uint(), u.Get("cacheWriteInputTokens").Uint(), u.Get("outputTokens").Uint()}
}

// minus is what t has beyond u, at least nothing.
func (t tokens) minus(u tokens) tokens {
	beyond := func(a, b uint64) uint64 { return max(a, b) - b }
	return tokens{beyond(t.input, u.input), beyond(t.cached, u.cached), beyond(t.written, u.written), beyond(t.output, u.output)}
}
