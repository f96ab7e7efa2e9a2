package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
)

// fixed is a configuration that does not change.
type fixed struct{ s *settings }

func (f fixed) settings() *settings { return f.s }

// book notes who was registered.
type book struct{ known *broker.Agent }

func (b book) Register(a broker.Agent) (string, broker.Limits, error) {
	*b.known = a
	return "/s/1", broker.Limits{Process: supervisor.Limits{Processes: 7}}, nil
}

func (book) Ancestors(string) []supervisor.Share { return nil }

func TestSpec(t *testing.T) {
	cwd := t.TempDir()
	var known broker.Agent
	cfg, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, "/")
	if err != nil {
		t.Fatal(err)
	}
	held := &settings{
		cfg:      cfg,
		childEnv: []string{"PATH=/bin"},
		limits: broker.Limits{
			Tokens: 9, RequestsPerMinute: 8, TokensPerMinute: 7, Concurrent: 6,
			Process: supervisor.Limits{MemoryBytes: 5, Processes: 4, OpenFiles: 3, CPUSeconds: 2, OutputBytesPerSecond: 1, TurnTime: time.Minute},
		},
	}
	s := &agentSpecs{
		child: "/opt/nexus-child", approval: 90 * time.Second, sessions: sessions.New("/home/me", nil),
		models: book{&known}, config: fixed{held},
	}
	tests := []struct {
		name        string
		params      api.CreateAgentParams
		depth       uint64
		ceiling     *protocol.Permissions
		wantArgv    []string
		wantResume  []string
		wantDir     string
		wantEnv     []string // where it is not that of every child
		wantKnown   broker.Agent
		wantInvalid string // parameter
	}{
		{
			name:       "a saved name alone",
			params:     api.CreateAgentParams{AgentID: new("worker")},
			wantArgv:   []string{"/opt/nexus-child", "--session=worker", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantResume: []string{"/opt/nexus-child", "--continue=worker", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name:       "a temporary one lives in run",
			params:     api.CreateAgentParams{AgentID: new(".temp")},
			wantArgv:   []string{"/opt/nexus-child", "--session=.temp", "--session-dir=/home/me/run/temp", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantResume: []string{"/opt/nexus-child", "--continue=.temp", "--session-dir=/home/me/run/temp", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name: "settings are for the first incarnation, the session keeps them",
			params: api.CreateAgentParams{
				AgentID: new("a"), SystemPrompt: new("--be brief"), Preset: new("trusted"), Cwd: &cwd, Model: new("m"), Provider: new("openai"),
			},
			wantArgv: []string{
				"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1",
				"--system-env", "--preset=trusted", "--cwd=" + cwd, "--model=m", "--provider=openai",
			},
			wantEnv:    []string{"PATH=/bin", "NEXUS3_SYSTEM=--be brief"},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantDir:    cwd,
		},
		{
			name:       "variables by their names alone",
			params:     api.CreateAgentParams{AgentID: new("a"), Env: &map[string]string{"B": "2", "A": "1"}},
			wantArgv:   []string{"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--pass-env=A,B"},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--pass-env=A,B"},
			wantEnv:    []string{"PATH=/bin", "A=1", "B=2"},
		},
		{
			name:       "an empty system prompt is one that was asked for",
			params:     api.CreateAgentParams{AgentID: new("a"), SystemPrompt: new("")},
			wantArgv:   []string{"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--system-env"},
			wantEnv:    []string{"PATH=/bin", "NEXUS3_SYSTEM="},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name:   "a child of another agent",
			params: api.CreateAgentParams{AgentID: new("a"), ParentAgentID: new("boss"), Preset: new("sandboxed")}, depth: 2,
			wantArgv: []string{
				"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--parent-agent=boss", "--depth=2", "--model-socket=/s/1",
				"--preset=sandboxed",
			},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--parent-agent=boss", "--depth=2", "--model-socket=/s/1"},
		},
		{
			name: "limits of its own, over the default ones",
			params: api.CreateAgentParams{
				AgentID: new("a"), Limits: &api.Limits{
					Tokens: new(uint64(5)), TokensPerMinute: new(uint64(1 << 40)), MemoryBytes: new(uint64(1 << 30)), Processes: new(uint64(0)),
					TurnSeconds: new(uint64(90)),
				},
			},
			wantArgv:   []string{"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantKnown: broker.Agent{
				ID: "a", New: true, Limits: &broker.Limits{
					Tokens: 5, RequestsPerMinute: 8, TokensPerMinute: 1 << 40, Concurrent: 6,
					Process: supervisor.Limits{MemoryBytes: 1 << 30, OpenFiles: 3, CPUSeconds: 2, OutputBytesPerSecond: 1, TurnTime: 90 * time.Second},
				},
			},
		},
		{
			name: "what a parent hands on holds for all incarnations",
			params: api.CreateAgentParams{
				AgentID: new("a"), Preset: new("trusted"), Approvals: new("ask"), DisableTools: &[]string{"shell"}, AllowedWritePaths: &[]string{},
			},
			ceiling: &protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/srv"}},
			wantArgv: []string{
				"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--approvals=ask", "--approval-timeout=1m30s",
				`--ceiling={"preset":"trusted","allowed_paths":["/srv"]}`, "--model-socket=/s/1",
				`--permissions={"preset":"trusted","disabled_tools":["shell"],"write_paths":[]}`,
			},
			wantResume: []string{
				"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--approvals=ask", "--approval-timeout=1m30s",
				`--ceiling={"preset":"trusted","allowed_paths":["/srv"]}`, "--model-socket=/s/1",
			},
		},
		{
			name:        "a cwd that is not there",
			params:      api.CreateAgentParams{AgentID: new("a"), Cwd: new(cwd + "/nothing")},
			wantInvalid: "cwd",
		},
		{
			name:        "a model of an unknown provider",
			params:      api.CreateAgentParams{AgentID: new("a"), Model: new("nosuch/x")},
			wantInvalid: "model",
		},
		{
			name:        "an unknown model of a provider",
			params:      api.CreateAgentParams{AgentID: new("a"), Model: new("x"), Provider: new("offline")},
			wantInvalid: "model",
		},
		{
			name:        "an unknown provider",
			params:      api.CreateAgentParams{AgentID: new("a"), Model: new("x"), Provider: new("nosuch")},
			wantInvalid: "provider",
		},
		{
			name:        "a system prompt that no variable can hold",
			params:      api.CreateAgentParams{AgentID: new("a"), SystemPrompt: new(strings.Repeat("x", maxSystemPrompt+1))},
			wantInvalid: "system_prompt",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.BuildSpec(agents.AgentSpec{CreateAgentParams: tt.params, Depth: tt.depth, Ceiling: tt.ceiling})
			if tt.wantInvalid != "" {
				invalid, ok := errors.AsType[*api.ParamError](err)
				if !ok || invalid.Param != tt.wantInvalid {
					t.Fatalf("spec: error %v, want one about %s", err, tt.wantInvalid)
				}
				return
			}
			if err != nil {
				t.Fatalf("spec: %v", err)
			}
			if diff := cmp.Diff(tt.wantArgv, got.Argv); diff != "" {
				t.Errorf("argv (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantResume, got.Resume); diff != "" {
				t.Errorf("resume (-want +got):\n%s", diff)
			}
			if tt.wantKnown.ID == "" {
				tt.wantKnown = broker.Agent{ID: *tt.params.AgentID, Parent: protocol.Value(tt.params.ParentAgentID), New: true}
			}
			if diff := cmp.Diff(tt.wantKnown, known); diff != "" {
				t.Errorf("registered (-want +got):\n%s", diff)
			}
			if got.Limits != (supervisor.Limits{Processes: 7}) {
				t.Errorf("limits %+v, want those that the broker says hold", got.Limits)
			}
			wantEnv := held.childEnv
			if tt.wantEnv != nil {
				wantEnv = tt.wantEnv
			}
			if !got.HostCalls || got.Dir != tt.wantDir || !slices.Equal(got.Env, wantEnv) {
				t.Errorf("dir %q, env %q; want %q, %q", got.Dir, got.Env, tt.wantDir, wantEnv)
			}
		})
	}
}

// A child sees what it needs and no secret that is not meant for it.
func TestChildEnv(t *testing.T) {
	home := t.TempDir()
	environ := []string{
		"HOME=/home/me", "NEXUS_HOME=" + home, "PATH=/bin", "LC_ALL=C", "OPENAI_API_KEY=sk-1", "NEXUS3_API_KEY=nxk_1",
		"AWS_SECRET_ACCESS_KEY=no", "LD_PRELOAD=no", "EMPTY", "HTTPS_PROXY=http://proxy", "LC_KEY=sk-2",
	}
	personal := `{"providers":{"p":{"type":"openai","api_key_env":"LC_KEY"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(personal), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(environ, home)
	if err != nil {
		t.Fatal(err)
	}
	got := childEnv(environ, cfg)
	want := []string{
		"NEXUS_HOME=" + home, "HOME=/home/me", "PATH=/bin", "LC_ALL=C", "HTTPS_PROXY=http://proxy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
