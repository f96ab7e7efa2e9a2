package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
)

// maxSystemPrompt bounds a system prompt that travels in a variable of the environment,
// in bytes: the system allows 128 KiB for one.
const maxSystemPrompt = 100 << 10

// admission checks what agents are to be started, and keeps their limits. It is not changed
// after its making and safe for concurrent use.
type admission struct {
	config   settingsSource
	sessions *sessions.Catalogue
	offline  bool   // a scenario is the model of all agents
	dir      string // absolute, where the server runs; "" if that is not known
	models   accounts
}

// programs knows what runs for agents: their own processes, and checkers of code.
type programs struct {
	*admission
	*checkers
}

// settingsSource is a configuration whose settings may change.
type settingsSource interface{ settings() *settings }

// accounts are those that the broker keeps of agents.
type accounts interface {
	// Register makes an agent known and tells which limits hold.
	Register(broker.Agent) (broker.Limits, error)
	// AgentLimits are what an agent is held to, and SetLimits changes that.
	AgentLimits(agent string) (broker.AgentLimits, error)
	SetLimits(agent string, l broker.Limits) error
}

// Admit implements [agents.Admission]. The error is an *api.ParamError where the parameters
// are at fault, a *sessions.Error where the agent's limits, or those of one above it, cannot
// be read, and a *agents.MissingDirError where its directory is gone.
func (a *admission) Admit(s supervisor.Spec, own *api.Limits) (supervisor.Spec, error) {
	if err := errors.Join(a.checkDir(s), checkParams(s), a.checkModel(s), a.checkProgram(s), a.mayReturn(s)); err != nil {
		return supervisor.Spec{}, err
	}
	limits, err := a.limits(s, own)
	if err != nil {
		return supervisor.Spec{}, err
	}
	held, err := a.models.Register(broker.Agent{
		ID: s.ID, Parent: s.Labels.Parent, Ancestors: s.Ancestors, Limits: limits, New: s.Fresh,
	})
	if err != nil {
		return supervisor.Spec{}, unreadableLimits(err)
	}
	s.Limits, s.MaxAgents = held.ProcessLimits, &held.Agents
	if s.Fresh {
		s.Labels.Cwd = a.dir // if it is given no other
	}
	return s, nil
}

// Kinds implements [agents.Admission].
func (a *admission) Kinds() map[string]agents.Kind {
	kinds := map[string]agents.Kind{}
	for name, k := range a.config.settings().cfg.Kinds {
		kind := agents.Kind{Program: k.Program(name), Env: k.Env, Agents: k.Agents}
		if len(k.Command) > 0 {
			kind.Path, _ = exec.LookPath(k.Command[0]) // "" where it is not found
		}
		kinds[name] = kind
	}
	return kinds
}

// checkProgram finds what is wrong with the program of an agent of another make that only this machine
// can tell.
func (a *admission) checkProgram(s supervisor.Spec) error {
	if s.Program == nil || !s.Fresh {
		return nil
	}
	if _, err := exec.LookPath(s.Program.Command[0]); err != nil {
		return api.Invalid("command", "there is no program %s: install it, or name it by its path", s.Program.Command[0])
	}
	if s.Program.Models == "" {
		return nil
	}
	if _, err := a.config.settings().cfg.Models.Provider(s.Program.Models); err != nil {
		return api.Invalid("models", "%v", err)
	}
	return nil
}

// checkParams finds what only the machine can tell.
func checkParams(s supervisor.Spec) error {
	if len(protocol.Value(s.SystemPrompt)) > maxSystemPrompt {
		return api.Invalid("system_prompt", "want at most %d bytes, have %d", maxSystemPrompt, len(*s.SystemPrompt))
	}
	if s.Cwd != "" {
		if info, err := os.Stat(s.Cwd); err != nil || !info.IsDir() {
			return api.Invalid("cwd", "%s is not a directory", s.Cwd)
		}
	}
	return nil
}

// checkDir refuses a new agent in a directory of nexus's own, in which each of its tools would be refused.
func (a *admission) checkDir(s supervisor.Spec) error {
	cfg, preset := a.config.settings().cfg, s.Permissions.Preset
	if s.Cwd == "" || !s.Fresh || preset == rights.Yolo || cfg.Presets[preset].Preset == rights.Yolo || !cfg.Home.Owns(s.Cwd) {
		return nil
	}
	return api.Invalid("cwd", "%s is out of bounds: it belongs to nexus itself", s.Cwd)
}

// checkModel finds a model or a provider that the child could not choose. No project's
// file adds to what the server knows of them (SPEC §4.3).
func (a *admission) checkModel(s supervisor.Spec) error {
	if s.Program != nil { // its models are the program's to know
		return nil
	}
	if model := protocol.Value(s.Settings.FallbackModel); model != "" {
		if _, err := a.config.settings().cfg.Models.Choose(config.Wish{Model: model}); err != nil {
			return api.Invalid("settings.fallback_model", "%v", err)
		}
	}
	w := config.Wish{Provider: s.Provider, Model: s.Model}
	if w == (config.Wish{}) {
		return nil
	}
	w.Scenario = a.offline
	_, err := a.config.settings().cfg.Models.Choose(w)
	if err == nil {
		return nil
	}
	e, unknown := errors.AsType[*config.UnknownProviderError](err)
	if w.Model == "" || unknown && e.Model == "" {
		return api.Invalid("provider", "%v", err)
	}
	return api.Invalid("model", "%v", err)
}

// mayReturn is a *agents.MissingDirError if s goes on with a session that has no directory to work
// in.
func (a *admission) mayReturn(s supervisor.Spec) error {
	if s.Fresh {
		return nil
	}
	saved, err := a.sessions.Summary(s.ID)
	if err != nil || saved.Settings.Cwd == nil || saved.Settings.Permissions == nil {
		return nil //nolint:nilerr // its child says what is wrong with it
	}
	was, may := *saved.Settings.Cwd, saved.Settings.Permissions
	real, gone := filepath.EvalSymlinks(was)
	if gone == nil && real == was || may.Preset == rights.Yolo {
		return nil
	}
	if s.Cwd != "" {
		cwd, err := filepath.EvalSymlinks(s.Cwd)
		if err != nil {
			return nil //nolint:nilerr // check says so
		}
		for _, dir := range may.AllowedPaths {
			if _, ok := safefile.Below(dir, cwd); ok {
				return nil
			}
		}
	}
	return &agents.MissingDirError{Session: s.ID, Cwd: was, Err: gone, Wanted: s.Cwd, Allowed: may.AllowedPaths}
}
