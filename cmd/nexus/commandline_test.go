package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/stdio"
)

func TestCommand(t *testing.T) {
	c := &childFlags{child: "/opt/nexus-child", approval: 90 * time.Second, sessions: sessions.New("/home/me", nil), config: fixed{fixedSettings(t)}}
	tests := []struct {
		name       string
		spec       supervisor.Spec
		wantFirst  []string // arguments
		wantSystem *string  // of the first
		wantLater  []string
		wantOwn    []string // variables
	}{
		{
			name:      "a saved name alone",
			spec:      supervisor.Spec{ID: "worker", ModelSocket: "/s/1"},
			wantFirst: []string{"--session=worker", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantLater: []string{"--continue=worker", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name:      "a temporary one lives in run",
			spec:      supervisor.Spec{ID: ".temp", ModelSocket: "/s/1"},
			wantFirst: []string{"--session=.temp", "--session-dir=/home/me/run/temp", "--session-updates", "--host-calls", "--model-socket=/s/1"},
			wantLater: []string{"--continue=.temp", "--session-dir=/home/me/run/temp", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name: "settings are for the first incarnation, the session keeps them",
			spec: supervisor.Spec{
				ID: "a", ModelSocket: "/s/1", SystemPrompt: new("--be brief"), Permissions: protocol.Permissions{Preset: "trusted"}, Cwd: "/site", Model: "m", Provider: "openai",
			},
			wantFirst: []string{
				"--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1",
				"--system-env", "--preset=trusted", "--cwd=/site", "--model=m", "--provider=openai",
			},
			wantSystem: new("--be brief"),
			wantLater:  []string{"--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name:      "variables by their names alone",
			spec:      supervisor.Spec{ID: "a", ModelSocket: "/s/1", Env: map[string]string{"B": "2", "A": "1"}},
			wantFirst: []string{"--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--pass-env=A,B"},
			wantLater: []string{"--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--pass-env=A,B"},
			wantOwn:   []string{"A=1", "B=2"},
		},
		{
			name:       "an empty system prompt is one that was asked for",
			spec:       supervisor.Spec{ID: "a", ModelSocket: "/s/1", SystemPrompt: new("")},
			wantFirst:  []string{"--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1", "--system-env"},
			wantSystem: new(""),
			wantLater:  []string{"--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--model-socket=/s/1"},
		},
		{
			name: "a child of another agent",
			spec: supervisor.Spec{ID: "a", ModelSocket: "/s/1", Labels: supervisor.Labels{Parent: "boss", Depth: 2}, Permissions: protocol.Permissions{Preset: "sandboxed"}},
			wantFirst: []string{
				"--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--parent-agent=boss", "--depth=2", "--model-socket=/s/1",
				"--preset=sandboxed",
			},
			wantLater: []string{"--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--parent-agent=boss", "--depth=2", "--model-socket=/s/1"},
		},
		{
			name: "what a parent hands on holds for all incarnations",
			spec: supervisor.Spec{
				ID: "a", ModelSocket: "/s/1", Labels: supervisor.Labels{Approvals: "ask"},
				Permissions: protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}, WritePaths: []string{}},
				Ceiling:     &protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/srv"}},
			},
			wantFirst: []string{
				"--session=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--approvals=ask", "--approval-timeout=1m30s",
				`--ceiling={"preset":"trusted","allowed_paths":["/srv"]}`, "--model-socket=/s/1",
				`--permissions={"preset":"trusted","disabled_tools":["shell"],"write_paths":[]}`,
			},
			wantLater: []string{
				"--continue=a", "--session-dir=/home/me/sessions", "--session-updates", "--host-calls", "--approvals=ask", "--approval-timeout=1m30s",
				`--ceiling={"preset":"trusted","allowed_paths":["/srv"]}`, "--model-socket=/s/1",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for again, want := range map[bool]protocol.Become{false: {Args: tt.wantFirst, System: tt.wantSystem}, true: {Args: tt.wantLater}} {
				got, err := c.Command(tt.spec, again)
				if err != nil {
					t.Fatal(err)
				}
				want.Dir = tt.spec.Cwd
				if diff := cmp.Diff(stdio.Command{Program: "/opt/nexus-child", Env: []string{"PATH=/bin"}, Own: tt.wantOwn, Become: want}, got); diff != "" {
					t.Errorf("again %v (-want +got):\n%s", again, diff)
				}
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
		"NEXUS_HOME=" + home, "GOMAXPROCS=1", "HOME=/home/me", "PATH=/bin", "LC_ALL=C", "HTTPS_PROXY=http://proxy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
