package pi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	arguments := []string{"--mode", "rpc"}
	for _, a := range []struct{ flag, value string }{
		{"--session", o.Resume}, {"--model", o.Model}, {"--append-system-prompt", o.System},
	} {
		if a.value != "" {
			arguments = append(arguments, a.flag, a.value)
		}
	}
	program, err := o.Launch(arguments...)
	if err != nil {
		return nil, err
	}
	s := &session{client: o.Client, log: o.Log}
	s.peer = jsonlines.Start(program, s, o.Log)
	if err := s.open(ctx, o.Resume); err != nil {
		s.peer.Close()
		return nil, err
	}
	return s, nil
}

// open brings the program to where it takes prompts. It tells on stderr alone why it ends, and no
// more than that it ends if it has no such conversation.
func (s *session) open(ctx context.Context, resume string) error {
	state, err := s.call(ctx, command{Type: "get_state"})
	if errors.Is(err, foreign.ErrEnded) && resume != "" {
		return fmt.Errorf("%w: %w", foreign.ErrNotResumed, err)
	}
	if err != nil {
		return err
	}
	if id := state.Get("sessionId").Str; resume != "" && id != resume {
		return fmt.Errorf("%w: it began the conversation %.64q", foreign.ErrNotResumed, id)
	}
	s.learn(state)
	offered, err := s.call(ctx, command{Type: "get_available_models"})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range offered.Get("models").Array() {
		if len(s.models) < maxModels {
			s.models = append(s.models, protocol.Model{ModelID: modelName(m), ModelName: m.Get("name").Str})
		}
	}
	return nil
}

// modelName is what a model is called here; "" for none.
func modelName(m gjson.Result) string {
	provider, id := m.Get("provider").Str, m.Get("id").Str
	if id == "" || id == "unknown" {
		return ""
	}
	return provider + "/" + id
}

// command is one to the program.
type command struct {
	Type     string  `json:"type"`
	ID       string  `json:"id"`
	Message  string  `json:"message,omitempty"`
	Images   []image `json:"images,omitempty"`
	Provider string  `json:"provider,omitempty"`
	Model    string  `json:"modelId,omitempty"`
}

type image struct {
	Type string `json:"type"`
	Data []byte `json:"data"` // base64
	MIME string `json:"mimeType"`
}

// refusedError is what the program says against a command.
type refusedError struct{ command, text string }

func (e *refusedError) Error() string { return e.command + ": the program refuses: " + e.text }

// call sends a command and returns the data of its answer.
func (s *session) call(ctx context.Context, c command) (gjson.Result, error) {
	c.ID = s.nextID()
	answer, err := s.peer.Call(ctx, c.ID, c.Type, c)
	if err != nil {
		return gjson.Result{}, err
	}
	if !answer.Get("success").Bool() {
		return gjson.Result{}, &refusedError{c.Type, answer.Get("error").Str}
	}
	return answer.Get("data"), nil
}

func (s *session) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return "nexus-" + strconv.FormatUint(s.last, 10)
}

// SetModel implements [foreign.ModelSetter]. A name without a provider is that of the only one
// that has it.
func (s *session) SetModel(ctx context.Context, model string) error {
	provider, id, known := "", "", false
	s.mu.Lock()
	for _, m := range s.models {
		if m.ModelID == model || strings.HasSuffix(m.ModelID, "/"+model) {
			provider, id, known = strings.Cut(m.ModelID, "/")
			break
		}
	}
	s.mu.Unlock()
	if !known {
		return fmt.Errorf("the program offers no model %q", model)
	}
	set, err := s.call(ctx, command{Type: "set_model", Provider: provider, Model: id})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model = modelName(set)
	return nil
}

// Models implements [foreign.ModelSetter].
func (s *session) Models() []protocol.Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]protocol.Model(nil), s.models...)
}
