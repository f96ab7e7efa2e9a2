package acp

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
)

// version is the protocol's.
const version = 1

// Driver implements [foreign.Driver].
type Driver struct{}

// Open implements [foreign.Driver].
func (Driver) Open(ctx context.Context, o foreign.Opening) (foreign.Session, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	program, err := o.Launch()
	if err != nil {
		return nil, err
	}
	s := &session{client: o.Client, log: o.Log, between: map[string]string{}}
	s.peer = rpcpeer.Start(program, s, rpcpeer.Options{Log: o.Log})
	if err := s.open(ctx, o); err != nil {
		s.peer.Close()
		return nil, err
	}
	if len(s.models.offered) > 0 { // nobody else has the session yet, and no turn runs
		return &withModels{s}, nil
	}
	return s, nil
}

// Params of initialize.
type (
	initializeParams struct {
		ProtocolVersion int          `json:"protocolVersion"`
		Capabilities    capabilities `json:"clientCapabilities"`
		Client          client       `json:"clientInfo"`
	}
	capabilities struct {
		FS       fileSystem `json:"fs"`
		Terminal bool       `json:"terminal"`
	}
	fileSystem struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	}
	client struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	}
)

// setupParams are those of session/new, session/load and session/resume.
type setupParams struct {
	Session string     `json:"sessionId,omitempty"`
	Cwd     string     `json:"cwd"`
	Servers []struct{} `json:"mcpServers"`
}

// open brings the program to where it takes prompts.
func (s *session) open(ctx context.Context, o foreign.Opening) error {
	hello, err := s.peer.Call(ctx, "initialize", initializeParams{
		ProtocolVersion: version, Capabilities: capabilities{FS: fileSystem{Read: true, Write: true}},
		Client: client{Name: "nexus", Title: "nexus", Version: o.Version},
	})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if spoken := hello.Get("protocolVersion"); spoken.Raw != "1" {
		return fmt.Errorf("initialize: the program speaks version %.20s of the Agent Client Protocol, want %d", spoken.Raw, version)
	}
	info, able := hello.Get("agentInfo"), hello.Get("agentCapabilities")
	s.name, s.version = info.Get("name").Str, info.Get("version").Str
	s.images = able.Get("promptCapabilities.image").Bool()
	if err := s.setUp(ctx, o, able, hello.Get("authMethods")); err != nil {
		return err
	}
	if o.Model == "" || o.Model == s.About().Model {
		return nil
	}
	if err := s.setModel(ctx, o.Model); err != nil {
		return fmt.Errorf("choose the model: %w", err)
	}
	return nil
}

// setUp begins a conversation, or goes on with one.
func (s *session) setUp(ctx context.Context, o foreign.Opening, able, methods gjson.Result) error {
	method := "session/new"
	if o.Resume != "" {
		switch {
		case able.Get("sessionCapabilities.resume").IsObject():
			method = "session/resume"
		case able.Get("loadSession").Bool():
			method = "session/load" // what it replays comes before any turn
		default:
			return fmt.Errorf("%w: it offers neither session/load nor session/resume", foreign.ErrNotResumed)
		}
	}
	params := setupParams{Session: o.Resume, Cwd: o.Cwd, Servers: []struct{}{}}
	var result gjson.Result
	call := func() (err error) {
		result, err = s.peer.Call(ctx, method, params)
		return err
	}
	err := call()
	if wantsLogin(err) {
		err = s.logIn(ctx, methods, err, call)
	}
	if wantsLogin(err) {
		return err
	}
	if _, refused := errors.AsType[*rpcpeer.Error](err); refused && o.Resume != "" {
		return fmt.Errorf("%w: %s: %w", foreign.ErrNotResumed, method, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	id, cost := o.Resume, (*float64)(nil)
	if id == "" {
		if id = result.Get("sessionId").Str; id == "" {
			return fmt.Errorf("%s: the program does not name the session", method)
		}
		s.system, cost = o.System, new(float64)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	if s.cost == nil { // unless the program has told already
		s.cost = cost
	}
	s.models.read(result)
	return nil
}
