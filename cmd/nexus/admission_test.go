package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// fixedSettings are those of an empty configuration.
func fixedSettings(t *testing.T) *settings {
	cfg, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, "/")
	if err != nil {
		t.Fatal(err)
	}
	return &settings{
		cfg:      cfg,
		childEnv: []string{"PATH=/bin"},
		limits:   broker.Limits{Limits: protocol.Limits{Tokens: 9, RequestsPerMinute: 8, TokensPerMinute: 7, ProcessLimits: supervisor.Limits{MemoryBytes: 5, Processes: 4, OpenFiles: 3, CPUSeconds: 2, OutputBytesPerSecond: 1, TurnSeconds: 60}}, Concurrent: 6},
	}
}

// book notes who was registered.
type book struct{ known *broker.Agent }

func (b book) Register(a broker.Agent) (broker.Limits, error) {
	*b.known = a
	return broker.Limits{Limits: protocol.Limits{ProcessLimits: supervisor.Limits{Processes: 7}, Agents: 3}}, nil
}

func (book) AgentLimits(string) (broker.AgentLimits, error) { return broker.AgentLimits{}, nil }
func (book) SetLimits(string, broker.Limits) error          { return nil }

func TestAdmit(t *testing.T) {
	cwd := t.TempDir()
	var known broker.Agent
	a := &admission{models: book{&known}, config: fixed{fixedSettings(t)}, dir: "/srv", sessions: sessions.New("/home/me", nil)}
	tests := []struct {
		name        string
		spec        supervisor.Spec
		own         *api.Limits
		want        broker.Agent // that is registered
		wantInvalid string       // parameter
	}{
		{
			name: "a child of another agent",
			spec: supervisor.Spec{ID: "a", Fresh: true, Cwd: cwd, Labels: supervisor.Labels{Parent: "boss"}},
			want: broker.Agent{ID: "a", Parent: "boss", New: true},
		},
		{
			name: "one that goes on",
			spec: supervisor.Spec{ID: "a", Labels: supervisor.Labels{Parent: "boss"}, Ancestors: []string{"top"}},
			want: broker.Agent{ID: "a", Parent: "boss", Ancestors: []string{"top"}},
		},
		{
			name: "limits of its own, over the default ones",
			spec: supervisor.Spec{ID: "a", Fresh: true},
			own: &api.Limits{
				Tokens: new(uint64(5)), TokensPerMinute: new(uint64(1 << 40)), MemoryBytes: new(uint64(1 << 30)), Processes: new(uint64(0)),
				TurnSeconds: new(uint64(90)),
			},
			want: broker.Agent{
				ID: "a", New: true, Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 5, RequestsPerMinute: 8, TokensPerMinute: 1 << 40, ProcessLimits: supervisor.Limits{MemoryBytes: 1 << 30, OpenFiles: 3, CPUSeconds: 2, OutputBytesPerSecond: 1, TurnSeconds: 90}}, Concurrent: 6},
			},
		},
		{
			name:        "a cwd that is not there",
			spec:        supervisor.Spec{ID: "a", Cwd: cwd + "/nothing"},
			wantInvalid: "cwd",
		},
		{
			name:        "a model of an unknown provider",
			spec:        supervisor.Spec{ID: "a", Model: "nosuch/x"},
			wantInvalid: "model",
		},
		{
			name:        "an unknown model of a provider",
			spec:        supervisor.Spec{ID: "a", Model: "x", Provider: "offline"},
			wantInvalid: "model",
		},
		{
			name:        "an unknown provider",
			spec:        supervisor.Spec{ID: "a", Model: "x", Provider: "nosuch"},
			wantInvalid: "provider",
		},
		{
			name:        "a system prompt that no variable can hold",
			spec:        supervisor.Spec{ID: "a", SystemPrompt: new(strings.Repeat("x", maxSystemPrompt+1))},
			wantInvalid: "system_prompt",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := a.Admit(tt.spec, tt.own)
			if tt.wantInvalid != "" {
				invalid, ok := errors.AsType[*api.ParamError](err)
				if !ok || invalid.Param != tt.wantInvalid {
					t.Fatalf("error %v, want one about %s", err, tt.wantInvalid)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, known); diff != "" {
				t.Errorf("registered (-want +got):\n%s", diff)
			}
			want := tt.spec
			want.Limits.Processes, want.MaxAgents = 7, new(uint64(3))
			if want.Fresh { // else the session says where it works
				want.Labels.Cwd = "/srv"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("admitted, with the limits that the broker says hold (-want +got):\n%s", diff)
			}
		})
	}
}
