package codex

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
)

// subcommand is what has the program speak this protocol.
const subcommand = "app-server"

// Driver implements [foreign.Driver].
type Driver struct{}

type initializeParams struct {
	Client client `json:"clientInfo"`
}

type client struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// threadParams are those of thread/start and thread/resume.
type threadParams struct {
	Thread       string `json:"threadId,omitempty"`
	Exclude      bool   `json:"excludeTurns,omitzero"`
	Cwd          string `json:"cwd"`
	Model        string `json:"model,omitempty"`
	Approval     string `json:"approvalPolicy"`
	Sandbox      string `json:"sandbox"`
	Instructions string `json:"developerInstructions,omitempty"`
}

// Open implements [foreign.Driver]. It adds the argument app-server, unless the command has it.
func (Driver) Open(ctx context.Context, o foreign.Opening) (foreign.Session, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	var arguments []string
	if !o.Has(subcommand) {
		arguments = []string{subcommand}
	}
	program, err := o.Launch(arguments...)
	if err != nil {
		return nil, err
	}
	s := &session{client: o.Client, log: o.Log}
	s.peer = rpcpeer.Start(program, s, rpcpeer.Options{NoVersion: true, Log: o.Log})
	if err := s.open(ctx, o); err != nil {
		s.peer.Close()
		return nil, err
	}
	return s, nil
}

func (s *session) open(ctx context.Context, o foreign.Opening) error {
	if _, err := s.peer.Call(ctx, "initialize", initializeParams{client{"nexus", "nexus", o.Version}}); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if err := s.peer.Notify("initialized", nil); err != nil {
		return err
	}
	params := threadParams{Cwd: o.Cwd, Model: o.Model, Approval: "untrusted", Sandbox: "workspace-write", Instructions: o.System}
	method := "thread/start"
	if o.Resume != "" {
		method, params.Thread, params.Exclude = "thread/resume", o.Resume, true
	}
	result, err := s.peer.Call(ctx, method, params)
	if _, refused := errors.AsType[*rpcpeer.Error](err); refused && o.Resume != "" {
		return fmt.Errorf("%w: %s: %w", foreign.ErrNotResumed, method, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	thread := result.Get("thread")
	id := thread.Get("id").Str
	if id == "" || (o.Resume != "" && id != o.Resume) {
		return fmt.Errorf("%s: the program names the thread %q", method, id)
	}
	models, err := s.listModels(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.version, s.model, s.models = id, thread.Get("cliVersion").Str, result.Get("model").Str, models
	if o.Resume == "" {
		s.total = &tokens{}
	}
	return nil
}

// maxModels is how many models are listed.
const maxModels = 1000

// listModels are the models that the program offers; none if it does not say.
func (s *session) listModels(ctx context.Context) (all []protocol.Model, err error) {
	result, err := s.peer.Call(ctx, "model/list", struct {
		Limit int `json:"limit"`
	}{maxModels})
	if _, refused := errors.AsType[*rpcpeer.Error](err); refused {
		return nil, nil
	}
	result.Get("data").ForEach(func(_, m gjson.Result) bool {
		if id := m.Get("model").Str; id != "" && len(all) < maxModels {
			all = append(all, protocol.Model{ModelID: id, ModelName: m.Get("displayName").Str})
		}
		return true
	})
	return all, err
}
