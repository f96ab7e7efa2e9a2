package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child"
	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/acp"
	"nexus.internal/child/foreign/claude"
	"nexus.internal/child/foreign/codex"
	"nexus.internal/child/foreign/modelgate"
	"nexus.internal/child/foreign/nexus"
	"nexus.internal/child/foreign/pi"
	"nexus.internal/child/foreign/pipe"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/toolenv"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/version"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// drivers are the protocols of agents of other makes: one line each.
var drivers = map[string]foreign.Driver{
	"acp":    acp.Driver{},
	"claude": claude.Driver{},
	"codex":  codex.Driver{},
	"nexus":  nexus.Driver{},
	"pi":     pi.Driver{},
	"pipe":   pipe.Driver{},
}

// chosenProgram is the program of another make that an agent runs as.
type chosenProgram struct {
	protocol.AgentProgram
	env    []string        // of its environment beside the usual
	models *modelgate.Gate // by which it reaches the broker's; nil for none
}

// record is what is saved of it: all, where the session begins.
func (p *chosenProgram) record(saved transcript.Settings) []transcript.Record {
	if saved.Program != nil {
		return nil
	}
	return []transcript.Record{transcript.Settings{Program: &p.AgentProgram, At: time.Now().UTC()}}
}

// chooseModelOrProgram settles on who answers: a model, or a program of another make, which is nil
// for a model. It takes the keys out of the environment.
func (a *assembly) chooseModelOrProgram(f *flags, saved transcript.Settings, current *configuration, environ []string) (*chosenProgram, error) {
	program, err := chooseProgram(f.program, saved)
	switch {
	case err != nil:
		return nil, err
	case program == nil:
		return nil, a.chooseModel(f, saved, current)
	}
	models, err := openModels(*program, f.modelSocket, current.now(), a.options.Log)
	if err != nil {
		return nil, fmt.Errorf("the models of a program of kind %s: %w", program.Kind, err)
	}
	chosen := &chosenProgram{*program, passed(f.passEnv, environ), models} // before the keys among them are gone
	return chosen, a.chooseProgramModel(f, saved, current, program)
}

// chooseProgram settles on the program of another make that the agent runs as: that of the session,
// or, where that begins, what is asked for; nil for none.
func chooseProgram(asked *protocol.AgentProgram, saved transcript.Settings) (*protocol.AgentProgram, error) {
	program := asked
	if saved != (transcript.Settings{}) {
		program = saved.Program
		if asked != nil && (program == nil || program.Kind != asked.Kind) {
			was := "nexus"
			if program != nil {
				was = program.Kind
			}
			return nil, fmt.Errorf("--program: the session is of an agent of kind %s, and stays so", was)
		}
	}
	if program != nil && drivers[program.Protocol] == nil {
		return nil, fmt.Errorf("this nexus-child does not speak the protocol %s", program.Protocol)
	}
	return program, nil
}

// passed are the variables of those names, as KEY=VALUE.
func passed(names, environ []string) (variables []string) {
	for _, pair := range environ {
		if name, _, ok := strings.Cut(pair, "="); ok && slices.Contains(names, name) {
			variables = append(variables, pair)
		}
	}
	return variables
}

// programDefault stands for the model that a program uses where nobody named one.
const programDefault = "default"

// chooseProgramModel settles on the model of a program, which is a name that the program knows, and
// takes the keys out of the environment.
func (a *assembly) chooseProgramModel(f *flags, saved transcript.Settings, current *configuration, p *protocol.AgentProgram) error {
	if f.scenario != "" {
		a.options.Log.Debug("the scenario is not played: the agent is of another make")
	}
	model := cmp.Or(f.model, protocol.Value(saved.Model), programDefault)
	if err := protocol.CheckModelName(model); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	a.options.Start = child.Selected{ProviderName: p.Kind, Model: model, ContextWindow: child.DefaultContextWindow}
	a.options.Models = &programModels{kind: p.Kind}
	return protectKeys(current.now(), f.modelSocket != "")
}

// openProgram starts the program.
func (a *assembly) openProgram(p *chosenProgram, cwd string) error {
	o := &a.options
	model := o.Start.Model
	if model == programDefault {
		model = ""
	}
	system := ""
	if o.Prompt.Explicit {
		system = o.Prompt.Text
	}
	env := toolenv.ForProgram(o.ToolEnv, p.AgentProgram)
	ctx, cancel := context.WithTimeout(context.Background(), protocol.ProgramStartTimeout)
	defer cancel()
	start := &programStart{env: env, models: p.models}
	agent, err := foreign.Open(ctx, foreign.Options{
		Program: p.AgentProgram, Driver: drivers[p.Protocol], Start: start, Cwd: cwd, Env: p.env, Model: model, System: system,
		Client: programClient{env}, SessionID: o.State.SessionID, Saved: o.State.Settings.ProgramSession, Began: len(o.State.Messages) > 0,
		Images: o.Images, Version: version.Of(), Stderr: os.Stderr, Log: o.Log.Named("program"),
	})
	if err != nil {
		return err
	}
	start.agent.Store(agent)
	o.Foreign = agent
	o.Models.(*programModels).set(agent)
	a.closers = append(a.closers, agent)
	return nil
}

// openModels is the way of a program to the models that the broker has for it; nil for none.
func openModels(p protocol.AgentProgram, modelSocket string, c *config.Config, log *zap.Logger) (*modelgate.Gate, error) {
	if p.Models == "" {
		return nil, nil
	}
	if modelSocket == "" {
		return nil, errors.New("they come from the broker of a server, and there is none: --model-socket is missing")
	}
	known, err := c.Provider(p.Models)
	if err != nil {
		return nil, err
	}
	return modelgate.New(modelgate.Options{
		Provider: p.Models, Type: known.Type, Protocol: p.Protocol, Broker: brokerClient(modelSocket).Transport, Log: log.Named("models"),
	})
}

// programStart starts a program under the permissions of the moment. models may be nil.
type programStart struct {
	env    toolenv.Program
	models *modelgate.Gate
	agent  atomic.Pointer[foreign.Agent] // once it is open
}

func (s *programStart) Start(ctx context.Context, spec sandbox.Spec) (*sandbox.Process, error) {
	if s.models != nil {
		spec.Rules.Service = s.models
	}
	return s.env.Start(ctx, spec, s)
}

// Outgrow implements [toolenv.Outgrower].
func (s *programStart) Outgrow() { s.agent.Load().Outgrow() }

// programClient answers what a program asks, by the agent's permissions.
type programClient struct{ toolenv.Program }

func (c programClient) Permit(ctx context.Context, q foreign.Question) (protocol.PermissionResponse, error) {
	return c.Ask(ctx, toolenv.ProgramCall{
		TurnID: q.TurnID, ID: q.ID, Name: q.Name, Input: q.Input, Action: q.Action, Summary: q.Summary, Command: q.Command,
		Paths: q.Paths, Hosts: q.Hosts, Runs: q.Runs, Options: q.Options,
	})
}

// programModels are the models of a program: whatever it takes.
type programModels struct {
	kind string

	mu    sync.Mutex
	agent *foreign.Agent
}

func (m *programModels) set(agent *foreign.Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agent = agent
}

// Select implements [child.Models]: the program decides whether there is such a model.
func (m *programModels) Select(model, _ string) (child.Selected, error) {
	return child.Selected{ProviderName: m.kind, Model: strings.TrimPrefix(model, m.kind+"/"), ContextWindow: child.DefaultContextWindow}, nil
}

// List implements [child.Models].
func (m *programModels) List(context.Context) (protocol.AvailableModels, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agent == nil {
		return protocol.AvailableModels{}, nil
	}
	setter := m.agent.Setter()
	if setter == nil {
		return protocol.AvailableModels{}, errors.New("the program names no models")
	}
	all := setter.Models()
	for i := range all {
		all[i].Provider = m.kind
	}
	return protocol.AvailableModels{Models: all}, nil
}

// Price implements [child.Models]: what a program's models cost, the program says itself.
func (*programModels) Price(string) (protocol.Price, bool) { return protocol.Price{}, false }
