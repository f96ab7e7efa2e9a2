package bridge_test

import (
	"errors"
	"strings"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// A limit that ended an agent's process is named for programs and for people.
func TestLimitIsTold(t *testing.T) {
	const limit = "memory limit 512 MiB"
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		r.launcher.Plan = func(s supervisor.Spec, _ int) supervisortest.Play {
			if s.ID == "small" {
				return supervisortest.Play{Refuse: &supervisor.StartError{
					Err: errors.New("no room"), Exit: &supervisor.Exit{Code: -1, Signal: "killed", Limit: "process limit 4"},
				}}
			}
			return supervisortest.Play{Prompt: func(c *supervisortest.Child, _ protocol.Prompt) {
				c.Crash(supervisor.Exit{Code: 2, Limit: limit})
			}}
		}
	})
	r.create("a")
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "grow"})
	e := wantError(t, err, jsonrpc.CodeServerError, "CHILD_CRASHED", 200)
	if e.Data.Limit != limit || !strings.Contains(e.Data.Details, "killed: "+limit) || len(e.Data.RecoverySuggestions) != 2 {
		t.Errorf("got data %+v", e.Data)
	}
	_, err = client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("small")})
	e = wantError(t, err, jsonrpc.CodeServerError, "START_FAILED", 200)
	if e.Data.Limit != "process limit 4" || !strings.Contains(e.Data.Details, "(killed: process limit 4)") {
		t.Errorf("got data %+v", e.Data)
	}
}

// A turn that was longer than the agent's limit is told of it, also when it is asked
// for again; one that was longer than its sender wanted is not.
func TestTurnLimitIsTold(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(supervisortest.UntilAborted)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			s.Limits.TurnSeconds = 1
			return nil
		}}
	})
	r.create("a")
	for range 2 {
		_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", RequestID: new("r")})
		e := wantError(t, err, jsonrpc.CodeServerError, "TIMEOUT", 200)
		if e.Data.Limit != "turn limit 1 s" || !strings.Contains(e.Data.Details, e.Data.Limit) ||
			len(e.Data.RecoverySuggestions) != 2 || !strings.Contains(e.Data.RecoverySuggestions[0], "limits.turn_s") || !strings.Contains(e.Data.RecoverySuggestions[1], "get_messages") {
			t.Errorf("got data %+v", e.Data)
		}
	}
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", TimeoutS: new(0.01)})
	e := wantError(t, err, jsonrpc.CodeServerError, "TIMEOUT", 200)
	if e.Data.Limit != "" || !strings.Contains(e.Data.RecoverySuggestions[0], "timeout_s") {
		t.Errorf("got data %+v", e.Data)
	}
}

// Limits that cannot be kept are refused before anything starts.
func TestLimitsAreChecked(t *testing.T) {
	r := rigged(t, nil)
	for problem, limits := range map[string]api.Limits{
		"limits.turn_s: want at most 86400, or 0 for no limit":                  {TurnSeconds: new(uint64(86401))},
		"limits.open_files: want at least 64, or 0 for no limit":                {OpenFiles: new(uint64(63))},
		"limits.memory_bytes: want at least 2097152, or 0 for no limit":         {MemoryBytes: new(uint64(2<<20 - 1))},
		"limits.cpu_s: want at most 1125899906842624, or 0 for no limit":        {CPUSeconds: new(uint64(1 << 51))},
		"limits.memory_bytes: want at most 1125899906842624, or 0 for no limit": {MemoryBytes: new(uint64(1 << 63))},
	} {
		_, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("a"), Limits: &limits})
		if e := wantError(t, err, jsonrpc.CodeInvalidParams, "INVALID_PARAMS", 200); e.Message != "Invalid parameter "+problem {
			t.Errorf("got %q, want …%s", e.Message, problem)
		}
	}
	most := api.Limits{OpenFiles: new(uint64(64)), TurnSeconds: new(uint64(86400)), MemoryBytes: new(uint64(1 << 50)), Processes: new(uint64(0))}
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("a"), Limits: &most}); err != nil {
		t.Error(err)
	}
}
