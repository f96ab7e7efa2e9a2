package methods_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/methods"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/notes"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house has the handlers of all methods over agents whose children are played in memory.
type house struct {
	t        *testing.T
	router   *rpc.Router
	launcher *supervisortest.Launcher
	sessions *sessions.Catalogue
	check    func(ctx context.Context, p api.ValidateCodeParams) error // of code
}

// outside is what the handlers have of others: a runtime, a store and a status with nothing.
type outside struct{}

func (outside) Kinds() map[string]agents.Kind { return nil }

func (outside) Admit(s supervisor.Spec, _ *api.Limits) (supervisor.Spec, error) { return s, nil }

func (outside) Limits(string) (agents.HeldLimits, error)           { return agents.HeldLimits{}, nil }
func (outside) SetLimits(string, api.Limits) error                 { return nil }
func (outside) Outcome(string, string) (supervisor.Outcome, error) { return "", nil }
func (outside) Forget(string)                                      {}
func (outside) Spares() (waiting int, used uint64)                 { return 0, 0 }
func (outside) Models() metrics.Models                             { return metrics.Models{} }

// Check is that of h.check.
func (h *house) Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error) {
	return api.ValidateCodeResult{}, h.check(ctx, p)
}

func newHouse(t *testing.T, command func(*supervisortest.Child, protocol.Command) bool) *house {
	t.Helper()
	home := t.TempDir()
	h := &house{t: t, sessions: sessions.New(home, nil)}
	h.launcher = &supervisortest.Launcher{Plan: func(supervisor.Spec, int) supervisortest.Play { return supervisortest.Play{Command: command} }}
	sup := supervisor.New(supervisor.Options{Launcher: h.launcher})
	registry, err := agents.New(agents.Options{Supervisor: sup, Sessions: h.sessions, Admission: outside{}, Store: outside{}})
	if err != nil {
		t.Fatal(err)
	}
	log, requests := zap.NewNop(), rpc.NewDrainGroup()
	h.router = rpc.NewRouter(rpc.Options{
		Access: registry.Access(), Metrics: metrics.New(metrics.Options{Supervisor: sup, Models: outside{}}), Log: log,
	})
	tasks := task.NewRunner(task.Options{Agents: registry, Dir: filepath.Join(home, "plans", "tasks"), Requests: requests, Log: log})
	methods.Register(h.router, methods.Options{
		Agents: registry, Tasks: tasks,
		Plans: plan.NewRunner(plan.Options{Agents: registry, Tasks: tasks, Dir: filepath.Join(home, "plans"), Requests: requests, Log: log}),
		Codes: new(auth.Codes), Checker: h, Notes: notes.OpenFile(t.TempDir()), Requests: requests, Addr: "127.0.0.1:1", Log: log,
	})
	running, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := sup.Run(running); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		work.Wait()
		registry.Close()
	})
	return h
}

// call calls a method of an agent with a full key, and returns the whole response.
func (h *house) call(agent, method, params string) string {
	h.t.Helper()
	return h.callBy(rpc.Principal{Grant: auth.Grant{Scope: auth.ScopeFull}}, agent, method, params)
}

func (h *house) callBy(by rpc.Principal, agent, method, params string) string {
	h.t.Helper()
	response, _ := h.router.Serve(h.t.Context(), &rpc.Call{
		Request: jsonrpc.Request{ID: jsonrpc.NullID, Method: method, Params: jsontext.Value(params)}, Agent: agent, By: by,
	}, nil)
	return string(jsonrpc.AppendResponse(nil, *response))
}

// save writes the session of an agent, which starts when it is asked something.
func (h *house) save(id string) {
	h.t.Helper()
	path := h.sessions.Path(id)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}\n"), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

// What the child says of a refused change decides what the client is told: the bound
// is no fault of a parameter, and neither is a disk without room, nor an answer that
// cannot be read.
func TestWhyAChangeIsRefused(t *testing.T) {
	var now string // the reason; set while no call runs
	h := newHouse(t, func(c *supervisortest.Child, cmd protocol.Command) bool {
		switch cmd.(type) {
		case protocol.SetCwd, protocol.SetPermissions, protocol.SetModel, protocol.SetSystemPrompt, protocol.UpdateContext, protocol.Compact:
			if now == "unreadable" {
				c.Respond(cmd, map[string]any{"ok": true, "cwd": 7, "permissions": 7, "model": 7, "system_prompt_path": 7, "notes": "7"})
			} else {
				c.Respond(cmd, map[string]any{"ok": false, "error": cmd.Name() + ": why", "reason": now})
			}
			return true
		}
		return false
	})
	h.save("a")
	for reason, want := range map[string]string{
		"": "INVALID_PARAMS", protocol.StorageFull: "STORAGE_FULL", protocol.NotSaved: "NOT_RECORDED", protocol.BeyondBound: "NOT_PERMITTED",
		protocol.Busy: "AGENT_BUSY", "unreadable": "EXECUTION_ERROR",
	} {
		now = reason
		for method, params := range map[string]string{
			"set_permissions": `{"preset":"sandboxed"}`, "set_cwd": `{"cwd":"/"}`, "set_model": `{"model":"x"}`,
			"set_system_prompt": `{"system_prompt":"x"}`, "update_context": `{"action":"add","context_type":"state","data":{"key":"x"}}`,
		} {
			if got := h.call("a", method, params); gjson.Get(got, "error.data.type").Str != want {
				t.Errorf("%q: %s: %s, want %s", reason, method, got, want)
			}
		}
	}
	now = protocol.Busy
	if got := h.call("a", "compact", `{}`); gjson.Get(got, "error.data.type").Str != "AGENT_BUSY" {
		t.Errorf("compact of a busy agent: %s", got)
	}
}

// To cancel or to shut down what does not run starts nothing.
func TestCancelAndShutdownDoNotStartASavedAgent(t *testing.T) {
	h := newHouse(t, nil)
	h.save("saved")
	if got := h.call("saved", "cancel", `{"request_id":"x"}`); gjson.Get(got, "result.cancelled").Raw != "false" {
		t.Errorf("cancel: %s", got)
	}
	if got := h.call("saved", "shutdown", `{}`); !gjson.Get(got, "result.success").Bool() {
		t.Errorf("shutdown: %s", got)
	}
	if n := len(h.launcher.Launches("saved")); n != 0 {
		t.Errorf("the agent was launched %d times, want never", n)
	}
}
