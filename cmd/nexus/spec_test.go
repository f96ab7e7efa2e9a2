package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
)

func TestSpec(t *testing.T) {
	cwd := t.TempDir()
	s := &specs{child: "/opt/nexus-child", env: []string{"PATH=/bin"}, sessions: sessions.New("/home/me", 9000)}
	tests := []struct {
		name        string
		params      api.CreateAgentParams
		wantArgv    []string
		wantResume  []string
		wantDir     string
		wantInvalid string // parameter
	}{
		{
			name:       "a saved name alone",
			params:     api.CreateAgentParams{AgentID: new("worker")},
			wantArgv:   []string{"/opt/nexus-child", "--session=worker", "--session-dir=/home/me/sessions", "--session-updates"},
			wantResume: []string{"/opt/nexus-child", "--continue=worker", "--session-dir=/home/me/sessions", "--session-updates"},
		},
		{
			name:       "a temporary one lives in run",
			params:     api.CreateAgentParams{AgentID: new(".temp")},
			wantArgv:   []string{"/opt/nexus-child", "--session=.temp", "--session-dir=/home/me/run/9000", "--session-updates"},
			wantResume: []string{"/opt/nexus-child", "--continue=.temp", "--session-dir=/home/me/run/9000", "--session-updates"},
		},
		{
			name: "settings are for the first incarnation, the session keeps them",
			params: api.CreateAgentParams{
				AgentID: new("a"), SystemPrompt: new("--be brief"), Preset: new("trusted"), Cwd: &cwd, Model: new("m"), Provider: new("p"),
			},
			wantArgv: []string{
				"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates",
				"--system=--be brief", "--preset=trusted", "--cwd=" + cwd, "--model=m", "--provider=p",
			},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates"},
			wantDir:    cwd,
		},
		{
			name:       "an empty system prompt is one that was asked for",
			params:     api.CreateAgentParams{AgentID: new("a"), SystemPrompt: new("")},
			wantArgv:   []string{"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--system="},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates"},
		},
		{
			name:   "a child of another agent is sandboxed",
			params: api.CreateAgentParams{AgentID: new("a"), ParentAgentID: new("boss")},
			wantArgv: []string{
				"/opt/nexus-child", "--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--parent-agent=boss", "--preset=sandboxed",
			},
			wantResume: []string{"/opt/nexus-child", "--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--parent-agent=boss"},
		},
		{
			name:        "a cwd that is not there",
			params:      api.CreateAgentParams{AgentID: new("a"), Cwd: new(cwd + "/nothing")},
			wantInvalid: "cwd",
		},
		{
			name:        "a system prompt that no argument can hold",
			params:      api.CreateAgentParams{AgentID: new("a"), SystemPrompt: new(strings.Repeat("x", maxSystemPrompt+1))},
			wantInvalid: "system_prompt",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.spec(tt.params)
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
			if got.Dir != tt.wantDir || !slices.Equal(got.Env, s.env) {
				t.Errorf("dir %q, env %q; want %q, %q", got.Dir, got.Env, tt.wantDir, s.env)
			}
		})
	}
}

// A child sees what it needs and no secret that is not meant for it.
func TestChildEnv(t *testing.T) {
	home := t.TempDir()
	environ := []string{
		"HOME=/home/me", "NEXUS_HOME=" + home, "PATH=/bin", "LC_ALL=C", "OPENAI_API_KEY=sk-1", "NEXUS3_API_KEY=nxk_1",
		"AWS_SECRET_ACCESS_KEY=no", "LD_PRELOAD=no", "EMPTY", "HTTPS_PROXY=http://proxy",
	}
	cfg, err := config.Load(environ, home)
	if err != nil {
		t.Fatal(err)
	}
	got := childEnv(environ, cfg)
	want := []string{
		"NEXUS_HOME=" + home, "HOME=/home/me", "PATH=/bin", "LC_ALL=C", "OPENAI_API_KEY=sk-1", "HTTPS_PROXY=http://proxy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
