package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/store"
)

// maxSystemPrompt bounds a system prompt that travels in a variable of the environment,
// in bytes: the system allows 128 KiB for one.
const maxSystemPrompt = 100 << 10

// agentSpecs knows how to run agents as nexus-child processes. It is not changed
// after its making and safe for concurrent use.
type agentSpecs struct {
	child    string // absolute path of nexus-child
	personal string // absolute path of the copy of config.json that children read
	config   settingsSource
	sessions *sessions.Catalogue
	// durability and scenario are flags of the server that go to every child;
	// "" passes none.
	durability string
	scenario   string
	approval   time.Duration // that a permission request may take
	logLevel   string        // of every child; "" is the default
	models     accounts
}

// childRuntime knows how to run nexus-child: as an agent, and to check code.
type childRuntime struct {
	*agentSpecs
	*checkers
}

// settingsSource is a configuration of which the settings may change.
type settingsSource interface{ settings() *settings }

// accounts are those that the broker keeps of agents.
type accounts interface {
	// Register makes an agent known and tells where the socket of its model will be,
	// and which limits hold.
	Register(broker.Agent) (socket string, l broker.Limits, err error)
	// Ancestors tells which agents a registered one comes from.
	Ancestors(agent string) []supervisor.Share
}

// BuildSpec implements [agents.SpecBuilder]. The first incarnation begins the session of
// that name, or continues it; what p asks for overrides what the session saved.
// Later ones insist on the session and take everything from it, so that what
// was changed meanwhile (set_model) holds. The error is an *api.ParamError where
// the parameters are at fault, a *sessions.Error where the agent's limits, or those of one
// above it, cannot be read, and a *agents.MissingDirError where its directory is gone.
func (s *agentSpecs) BuildSpec(p agents.AgentSpec) (supervisor.Spec, error) {
	id := protocol.Value(p.AgentID)
	ceiling, err := ceilingOf(p)
	if err != nil {
		return supervisor.Spec{}, err
	}
	patience := ""
	if protocol.Value(p.Approvals) == api.ApprovalsAsk {
		patience = s.approval.String()
	}
	always := slices.Concat([]string{"--session-dir=" + s.sessions.Dir(id), "--session-updates", "--host-calls"}, s.serverFlags(), flags(
		flag{"parent-agent", protocol.Value(p.ParentAgentID)},
		flag{"approvals", protocol.Value(p.Approvals)},
		flag{"approval-timeout", patience},
		flag{"ceiling", ceiling},
	))
	if p.Depth > 0 {
		always = append(always, fmt.Sprintf("--depth=%d", p.Depth))
	}
	if err := errors.Join(checkParams(p), s.checkModel(p), s.mayReturn(p)); err != nil {
		return supervisor.Spec{}, err
	}
	rules, err := rulesOf(p)
	if err != nil {
		return supervisor.Spec{}, err
	}
	if rules != "" {
		p.Preset = nil // it is one of the rules
	}
	socket, held, err := s.models.Register(broker.Agent{
		ID: id, Parent: protocol.Value(p.ParentAgentID), Ancestors: p.Ancestors, Limits: s.limits(p.Limits), New: !p.Restored,
	})
	if e, ok := errors.AsType[*store.DamagedError](err); ok {
		err = &sessions.Error{Name: e.Agent, Err: fmt.Errorf("%w: %w", sessions.ErrUnreadable, e)}
	}
	if err != nil {
		return supervisor.Spec{}, err
	}
	always = append(always, "--model-socket="+socket)
	env, passed := withAgentEnv(s.config.settings().childEnv, protocol.Value(p.Env))
	always = append(always, passed...)
	first := append([]string{s.child, "--session=" + id}, always...)
	if p.SystemPrompt != nil { // an empty one asks for none
		first = append(first, "--system-env")
		env = append(slices.Clip(env), "NEXUS3_SYSTEM="+*p.SystemPrompt) // other users see command lines
	}
	first = append(first, flags(
		flag{"preset", protocol.Value(p.Preset)},
		flag{"permissions", rules},
		flag{"cwd", protocol.Value(p.Cwd)},
		flag{"model", protocol.Value(p.Model)},
		flag{"provider", protocol.Value(p.Provider)},
	)...)
	return supervisor.Spec{
		ID:        id,
		Argv:      first,
		Resume:    append([]string{s.child, "--continue=" + id}, always...),
		Env:       env,
		Dir:       protocol.Value(p.Cwd),
		Limits:    held.Process,
		Ancestors: s.models.Ancestors(id),

		HostCalls: true,
		Labels:    supervisor.Labels{MaxAgents: &held.Agents},
	}, nil
}

// serverFlags are those that every child gets.
func (s *agentSpecs) serverFlags() []string {
	return flags(
		flag{"durability", s.durability},
		flag{"scenario", s.scenario},
		flag{"personal-config", s.personal},
		flag{"log-level", s.logLevel},
	)
}

// flag is one of a child's command line.
type flag struct{ name, value string }

// flags are those that have a value, as a command line has them.
func flags(given ...flag) (args []string) {
	for _, f := range given {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	return args
}

// withAgentEnv is an environment with an agent's own variables, and the flag by which its
// programs get these.
func withAgentEnv(env []string, own map[string]string) (all, flags []string) {
	if len(own) == 0 {
		return env, nil
	}
	names := slices.Sorted(maps.Keys(own))
	all = slices.Clone(env)
	for _, name := range names { // of two of a name, the last holds
		all = append(all, name+"="+own[name])
	}
	return all, []string{"--pass-env=" + strings.Join(names, ",")}
}

// ceilingOf is what the agent's permissions cannot exceed, as JSON; "" for no
// bound. A parent whose session was saved with names that are no tools may have them in
// it; the flag takes none.
func ceilingOf(p agents.AgentSpec) (string, error) {
	if p.Ceiling == nil {
		return "", nil
	}
	return encode("ceiling", p.Ceiling.KnownTools())
}

// rulesOf is what is asked for beyond a preset, as JSON; "" for nothing.
func rulesOf(p agents.AgentSpec) (string, error) {
	if p.AllowedWritePaths == nil && p.DisableTools == nil {
		return "", nil
	}
	return encode("permissions", protocol.Permissions{
		Preset:        protocol.Value(p.Preset),
		DisabledTools: protocol.Value(p.DisableTools),
		AllowedPaths:  protocol.Value(p.AllowedWritePaths),
		WritePaths:    protocol.Value(p.AllowedWritePaths),
	})
}

func encode(what string, p protocol.Permissions) (string, error) {
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode the %s: %w", what, err)
	}
	return string(text), nil
}

// checkParams finds what only the machine can tell.
func checkParams(p agents.AgentSpec) error {
	if len(protocol.Value(p.SystemPrompt)) > maxSystemPrompt {
		return api.Invalid("system_prompt", "want at most %d bytes, have %d", maxSystemPrompt, len(*p.SystemPrompt))
	}
	if p.Cwd != nil {
		if info, err := os.Stat(*p.Cwd); err != nil || !info.IsDir() {
			return api.Invalid("cwd", "%s is not a directory", *p.Cwd)
		}
	}
	return nil
}

// checkModel finds a model or a provider that the child could not choose. No project's
// file adds to what the server knows of them (SPEC §4.3).
func (s *agentSpecs) checkModel(p agents.AgentSpec) error {
	w := config.Wish{Provider: protocol.Value(p.Provider), Model: protocol.Value(p.Model)}
	if w == (config.Wish{}) {
		return nil
	}
	if s.scenario != "" { // which the offline model plays
		w.Provider = cmp.Or(w.Provider, "offline")
	}
	_, err := s.config.settings().cfg.Models.Choose(w)
	if err == nil {
		return nil
	}
	e, unknown := errors.AsType[*config.UnknownProviderError](err)
	if w.Model == "" || unknown && e.Model == "" {
		return api.Invalid("provider", "%v", err)
	}
	return api.Invalid("model", "%v", err)
}

// mayReturn is a *agents.MissingDirError if p goes on with a session that has no directory to work
// in.
func (s *agentSpecs) mayReturn(p agents.AgentSpec) error {
	if !p.Restored {
		return nil
	}
	saved, err := s.sessions.Summary(protocol.Value(p.AgentID))
	if err != nil || saved.Settings.Cwd == nil || saved.Settings.Permissions == nil {
		return nil //nolint:nilerr // its child says what is wrong with it
	}
	was, may := *saved.Settings.Cwd, saved.Settings.Permissions
	if real, err := filepath.EvalSymlinks(was); err == nil && real == was || may.Preset == rights.Yolo {
		return nil
	}
	if p.Cwd != nil {
		cwd, err := filepath.EvalSymlinks(*p.Cwd)
		if err != nil {
			return nil //nolint:nilerr // check says so
		}
		for _, dir := range may.AllowedPaths {
			if way, err := filepath.Rel(dir, cwd); err == nil && filepath.IsLocal(way) {
				return nil
			}
		}
	}
	return &agents.MissingDirError{Session: *p.AgentID, Cwd: was, Wanted: protocol.Value(p.Cwd), Allowed: may.AllowedPaths}
}

// childEnv is what a child may see of the server's environment: where things
// are, which language to speak, and how to reach the network. Keys are the broker's
// business.
func childEnv(environ []string, cfg *config.Config) []string {
	keep := map[string]bool{
		"PATH": true, "HOME": true, "USER": true, "LOGNAME": true, "TMPDIR": true, "TZ": true, "LANG": true, "LANGUAGE": true,
		"HTTP_PROXY": true, "HTTPS_PROXY": true, "NO_PROXY": true, "http_proxy": true, "https_proxy": true, "no_proxy": true,
		"SSL_CERT_FILE": true, "SSL_CERT_DIR": true,
	}
	for _, name := range cfg.KeyNames() { // whatever somebody called it
		keep[name] = false
	}
	env := []string{"NEXUS_HOME=" + string(cfg.Home)}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if kept, known := keep[name]; kept || !known && strings.HasPrefix(name, "LC_") {
			env = append(env, pair)
		}
	}
	return env
}
