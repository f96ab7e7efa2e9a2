package pi

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// uiResponse is the answer to a question of an extension.
type uiResponse struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Confirmed *bool  `json:"confirmed,omitzero"`
	Cancelled bool   `json:"cancelled,omitempty"`
}

// asked takes a question of an extension. t is nil between turns.
func (s *session) asked(t *turn, m gjson.Result) {
	id, method := m.Get("id").Str, m.Get("method").Str
	if t != nil && method != "confirm" {
		t.sink.Foreign([]byte(m.Raw))
	}
	answer := uiResponse{Type: "extension_ui_response", ID: id}
	switch method {
	case "confirm":
		if t != nil && s.peer.Go(func(ended context.Context) {
			yes := s.decide(ended, t, m)
			answer.Confirmed = &yes
			_ = s.peer.Send(answer)
		}) {
			return
		}
		answer.Confirmed = new(bool)
	case "select", "input", "editor":
		answer.Cancelled = true
	default:
		return // it wants no answer
	}
	_ = s.peer.Send(answer)
}

// decide has somebody decide.
func (s *session) decide(ended context.Context, t *turn, m gjson.Result) bool {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	stop := context.AfterFunc(ended, cancel)
	defer stop()
	q, err := question(t.id, m)
	if err != nil {
		return false // cannot be: it came as JSON
	}
	answer, err := s.client.Permit(ctx, q)
	if err != nil {
		s.log.Info("a question of the program gets a no", zap.Error(err))
		return false
	}
	return answer.Decision != protocol.Deny
}

// question is what an extension asks to be confirmed. What it is about nobody knows: its message may be the command that is to run.
func question(turn string, m gjson.Result) (foreign.Question, error) {
	title, message := m.Get("title").Str, m.Get("message").Str
	shown, err := json.Marshal(struct {
		Title   string `json:"title"`
		Message string `json:"message"`
	}{title, message})
	return foreign.Question{
		TurnID: turn, Call: foreign.Call{ID: m.Get("id").Str, Name: "confirm", Input: shown}, Action: protocol.ActionExternal,
		Summary: textcut.Clip(strings.TrimSpace(title+" "+message), foreign.MaxSummary), Runs: true,
	}, err
}
