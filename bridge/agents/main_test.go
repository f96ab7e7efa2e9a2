package agents_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const savedText = `{"type":"session","version":1,"session_id":"s","created_at":"2026-01-02T03:04:05Z"}` + "\n"

// house is a registry of agents whose children are played in memory. It is the Admission
// and the Store of its registry.
type house struct {
	*agents.Registry
	t        *testing.T
	sup      *supervisor.Supervisor
	launcher *supervisortest.Launcher
	sessions *sessions.Catalogue
	admit    func(supervisor.Spec) // runs where a spec is admitted; nil does nothing
	limits   map[string]api.Limits // that agents were started with
	forget   func(agent string)    // runs where an agent is forgotten; nil does nothing
}

func (h *house) Admit(s supervisor.Spec, own *api.Limits) (supervisor.Spec, error) {
	if own != nil {
		h.limits[s.ID] = *own
	}
	if h.admit != nil {
		h.admit(s)
	}
	return s, nil
}

// Limits has the tokens and the agents that an agent was started with.
func (h *house) Limits(agent string) (agents.HeldLimits, error) {
	return agents.HeldLimits{Held: h.limits[agent].Over(protocol.Limits{})}, nil
}

func (h *house) SetLimits(agent string, given api.Limits) error {
	h.limits[agent] = given
	return nil
}

// Kinds are none.
func (*house) Kinds() map[string]agents.Kind { return nil }

// Outcome is that of what an agent of any name left.
func (*house) Outcome(string, string) (supervisor.Outcome, error) { return supervisor.Cancelled, nil }

func (h *house) Forget(agent string) {
	if h.forget != nil {
		h.forget(agent)
	}
}

// newHouse returns a house whose agents play so.
func newHouse(t *testing.T, play supervisortest.Play) *house {
	t.Helper()
	if play.Command == nil {
		play.Command = stateful
	}
	h := &house{t: t, limits: map[string]api.Limits{}, sessions: sessions.New(t.TempDir(), nil)}
	h.launcher = &supervisortest.Launcher{Plan: func(supervisor.Spec, int) supervisortest.Play { return play }}
	h.sup = supervisor.New(supervisor.Options{Launcher: h.launcher})
	var err error
	if h.Registry, err = agents.New(agents.Options{Supervisor: h.sup, Sessions: h.sessions, Admission: h, Store: h}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := h.sup.Run(running); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		work.Wait()
		h.Close()
	})
	return h
}

// stateful answers get_state. The preset of an agent is the beginning of its name.
func stateful(c *supervisortest.Child, cmd protocol.Command) bool {
	if cmd.Name() != "get_state" {
		return false
	}
	preset := "sandboxed"
	if strings.HasPrefix(c.Spec().ID, "trusted") {
		preset = "trusted"
	}
	c.Respond(cmd, map[string]any{
		"ok": true, "streaming": false, "model": "echo", "provider": "test", "session_id": "s", "message_count": 0, "cwd": "/site",
		"preset": preset, "system_prompt": "You are a test.",
		"permissions": map[string]any{
			"permission_level": preset, "disabled_tools": []string{"shell"},
			"policy":             map[string]any{"cwd": "/site", "allowed_paths": []string{}, "write_paths": nil, "blocked_paths": []string{}, "tools": map[string]any{}},
			"session_allowances": map[string]any{"write_paths": []string{}, "exec_dirs": map[string]any{}},
			"ceiling":            protocol.Permissions{Preset: preset, DisabledTools: []string{"shell"}},
		},
	})
	return true
}

// person is a call of somebody with the full key.
func person() *rpc.Call {
	return &rpc.Call{By: rpc.Principal{Grant: auth.Grant{Scope: auth.ScopeFull}}}
}

// create makes an agent as create_agent does; parent is "" for none.
func (h *house) create(id, parent string) (*supervisor.Agent, agents.Origin, error) {
	return h.Create(h.t.Context(), person(), api.CreateAgentParams{AgentID: &id, ParentAgentID: agents.Known(parent)})
}

func (h *house) made(id, parent string) *supervisor.Agent {
	h.t.Helper()
	a, _, err := h.create(id, parent)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func (h *house) destroy(id string) {
	h.t.Helper()
	if err := h.Destroy(h.t.Context(), person(), id); err != nil {
		h.t.Fatal(err)
	}
}

// save writes the session of an agent.
func (h *house) save(id, text string) {
	h.t.Helper()
	path := h.sessions.Path(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// say has an agent run a turn to its end.
func (h *house) say(a *supervisor.Agent, text string) {
	h.t.Helper()
	turn, err := a.Prompt(h.t.Context(), protocol.Prompt{Message: text}, supervisor.PromptOptions{})
	if err == nil {
		_, err = turn.Wait(h.t.Context())
	}
	if err != nil {
		h.t.Error(err)
	}
}

// want reports an error that a client does not see as that kind.
func want(t *testing.T, err error, kind api.ErrorKind) {
	t.Helper()
	if err == nil || rpc.ToError(err).Err.Data.Type != string(kind) {
		t.Errorf("got %v, want %s", err, kind)
	}
}
