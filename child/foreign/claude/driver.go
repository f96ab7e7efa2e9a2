package claude

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/jsonlines"
	"nexus.internal/protocol"
)

// maxModels is how many models of a program are listed.
const maxModels = 1000

// Driver implements [foreign.Driver].
type Driver struct{}

// Open implements [foreign.Driver].
func (Driver) Open(ctx context.Context, o foreign.Opening) (foreign.Session, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	arguments := []string{
		"--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json", "--include-partial-messages",
		"--permission-prompt-tool", "stdio",
	}
	for _, a := range []struct{ flag, value string }{
		{"--resume", o.Resume}, {"--model", o.Model}, {"--append-system-prompt", o.System},
	} {
		if a.value != "" {
			arguments = append(arguments, a.flag, a.value)
		}
	}
	program, err := o.Launch(arguments...)
	if err != nil {
		return nil, err
	}
	s := &session{client: o.Client, log: o.Log, id: o.Resume, model: o.Model, questions: map[string]context.CancelFunc{}}
	s.peer = jsonlines.Start(program, s, o.Log)
	if err := s.open(ctx, o.Resume != ""); err != nil {
		s.peer.Close()
		return nil, err
	}
	return s, nil
}

// open brings the program to where it takes prompts.
func (s *session) open(ctx context.Context, resumed bool) error {
	hello, err := s.control(ctx, request{Subtype: "initialize"})
	if errors.Is(err, foreign.ErrEnded) {
		s.mu.Lock()
		refusal := s.refusal
		s.mu.Unlock()
		switch {
		case resumed && strings.Contains(refusal, "No conversation found"):
			return fmt.Errorf("%w: %s", foreign.ErrNotResumed, refusal)
		case refusal != "":
			return fmt.Errorf("%w: %s", err, refusal)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = hello.Get("claude_code_version").Str
	for _, m := range hello.Get("models").Array() {
		id := m.Get("value").Str
		if id == "" || len(s.models) == maxModels {
			continue
		}
		s.models = append(s.models, protocol.Model{ModelID: id, ModelName: m.Get("displayName").Str})
		if s.model == "" && id == "default" {
			s.model = m.Get("resolvedModel").Str
		}
	}
	return nil
}

// request is a control request of ours, and what it needs.
type request struct {
	Subtype string `json:"subtype"`
	Model   string `json:"model,omitempty"`
}

type controlRequest struct {
	Type    string  `json:"type"`
	ID      string  `json:"request_id"`
	Request request `json:"request"`
}

// control sends a control request and returns what the program answers.
func (s *session) control(ctx context.Context, r request) (gjson.Result, error) {
	id := s.nextID()
	answer, err := s.peer.Call(ctx, id, r.Subtype, controlRequest{"control_request", id, r})
	if err != nil {
		return gjson.Result{}, err
	}
	if answer.Get("subtype").Str != "success" {
		return gjson.Result{}, fmt.Errorf("%s: the program refuses: %s", r.Subtype, answer.Get("error").String())
	}
	return answer.Get("response"), nil
}

// SetModel implements [foreign.ModelSetter].
func (s *session) SetModel(ctx context.Context, model string) error {
	answer, err := s.control(ctx, request{Subtype: "set_model", Model: model})
	if err != nil {
		return err
	}
	if told := answer.Get("model").Str; told != "" {
		model = told
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model = model
	return nil
}

// Models implements [foreign.ModelSetter].
func (s *session) Models() []protocol.Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]protocol.Model(nil), s.models...)
}
