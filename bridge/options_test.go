package bridge_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"sync/atomic"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/metrics"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// plainRuntime is the runtime of a rig. It keeps what set_limits says of tokens.
type plainRuntime struct{ tokens *sync.Map }

func (plainRuntime) Admit(s supervisor.Spec, _ *api.Limits) (supervisor.Spec, error) {
	if s.Model == "none" {
		return supervisor.Spec{}, api.Invalid("model", "there is no model none")
	}
	return s, nil
}

func (plainRuntime) Kinds() map[string]agents.Kind {
	return map[string]agents.Kind{
		"copycat": {Program: protocol.AgentProgram{Kind: "copycat", Protocol: "pipe", Command: []string{"cat"}}, Path: "/bin/cat"},
		"script":  {Program: protocol.AgentProgram{Kind: "script", Protocol: "pipe"}, Agents: true},
	}
}

func (r plainRuntime) Limits(agent string) (agents.HeldLimits, error) {
	held := agents.HeldLimits{Held: protocol.Limits{Tokens: 7, Agents: 32}, Outer: protocol.Limits{Agents: 64}, TokensUsed: 3}
	if set, ok := r.tokens.Load(agent); ok {
		held.Held.Tokens = *set.(*uint64)
	}
	return held, nil
}

func (r plainRuntime) SetLimits(agent string, given api.Limits) error {
	if given.Tokens != nil {
		r.tokens.Store(agent, given.Tokens)
	}
	return nil
}

// Check finds fault with one word.
func (plainRuntime) Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	result := api.ValidateCodeResult{
		Valid: true, Checker: protocol.CodeChecker{Name: "looks", Version: "1", Command: []string{"looks", "code"}},
		Diagnostics: []protocol.CodeDiagnostic{}, UncheckedRules: append([]string{}, protocol.Value(p.Rules)...),
	}
	switch {
	case p.Language == "cobol":
		return result, &protocol.CodeError{Kind: protocol.UnknownLanguage, Message: `"cobol" is none of go, python`}
	case p.Language == "rust":
		return result, &protocol.CodeError{Kind: protocol.MissingChecker, Message: "no checker for rust is on this machine: install rustc"}
	case p.Code == "slow":
		<-ctx.Done()
		return result, ctx.Err()
	case p.Code == "bad":
		result.Valid = false
		result.Diagnostics = []protocol.CodeDiagnostic{{Line: 1, Column: 1, Severity: "error", Rule: "words", Message: "bad"}}
	}
	return result, nil
}

// withSpec is a runtime that also changes the specs that it admits, or refuses them.
type withSpec struct {
	bridge.Runtime
	change func(*supervisor.Spec) error
}

func (w withSpec) Admit(s supervisor.Spec, own *api.Limits) (supervisor.Spec, error) {
	s, err := w.Runtime.Admit(s, own)
	if err == nil {
		err = w.change(&s)
	}
	return s, err
}

// withCheck is a runtime that checks code so.
type withCheck struct {
	bridge.Runtime
	check func(context.Context, api.ValidateCodeParams) (api.ValidateCodeResult, error)
}

func (w withCheck) Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	return w.check(ctx, p)
}

// noStore has nothing.
type noStore struct{}

func (noStore) Outcome(string, string) (supervisor.Outcome, error) { return "", nil }
func (noStore) Forget(string)                                      {}
func (noStore) Events(string, uint64) iter.Seq2[supervisor.Event, error] {
	return func(func(supervisor.Event, error) bool) {}
}

// withForget is a store that is told what to forget.
type withForget struct {
	bridge.Store
	forget func(agent string)
}

func (w withForget) Forget(agent string) { w.forget(agent) }

// withHistory is a store with events.
type withHistory struct {
	bridge.Store
	history events.History
}

func (w withHistory) Events(agent string, n uint64) iter.Seq2[supervisor.Event, error] {
	return w.history.Events(agent, n)
}

// figures is the status of a rig.
type figures struct {
	running int          // requests to models
	full    *atomic.Bool // whether the disk is; nil is never
}

func (f figures) Checks() []httpd.Check {
	var err error
	if f.full != nil && f.full.Load() {
		err = errors.New("no space left")
	}
	return []httpd.Check{{Name: "home", Err: err}, {Name: "broker"}}
}
func (figures) Warnings() []string                   { return []string{"a key is missing"} }
func (f figures) Spares() (waiting int, used uint64) { return 0, 0 }

func (f figures) Nodes() api.ListNodesResult {
	return api.ListNodesResult{Node: "a", Nodes: []api.NodeInfo{{
		Node: "a", State: "up", Labels: map[string]string{"gpu": "none"}, Version: "v1", Processors: 4, Agents: 2, LastHeard: new("2026-01-02T03:04:05Z"),
	}}}
}

func (f figures) Label(set map[string]string, remove []string) (map[string]string, error) {
	labels := f.Nodes().Nodes[0].Labels
	maps.Copy(labels, set)
	for _, label := range remove {
		delete(labels, label)
	}
	return labels, nil
}

func (f figures) Remove(_ context.Context, node string, _ bool) (api.RemoveNodeResult, error) {
	if node != "b" {
		return api.RemoveNodeResult{}, api.Invalid("node", "no machine of that name is known")
	}
	return api.RemoveNodeResult{Node: node, Settled: true, Unsettled: []string{}, Waiting: 1, WaitingAgents: []string{"worker"}}, nil
}

func (f figures) Models() metrics.Models { return metrics.Models{Running: f.running} }
