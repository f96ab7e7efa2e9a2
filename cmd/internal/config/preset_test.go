package config_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

func TestPresets(t *testing.T) {
	c := load(t, `{"presets":{"p":{"preset":"trusted","allowed_paths":["~/lib","/usr"],"write_paths":[],"disabled_tools":["shell"],
		"tools":{"read_file":{"mode":"ask","blocked_paths":["~/.ssh"]}}}}}`, "HOME=/home/me")
	want := map[string]protocol.Permissions{"p": {
		Preset: "trusted", AllowedPaths: []string{"/home/me/lib", "/usr"}, WritePaths: []string{}, DisabledTools: []string{"shell"},
		Tools: map[string]protocol.ToolRule{"read_file": {Mode: "ask", BlockedPaths: []string{"/home/me/.ssh"}}},
	}}
	if diff := cmp.Diff(want, c.Presets); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := load(t, "").Presets; got == nil || len(got) > 0 {
		t.Errorf("without any: %v", got)
	}
}

// A project's file comes from anybody, and the agent itself may write it: it has
// no say in what an agent may do.
func TestProjectsHaveNoSayInPermissions(t *testing.T) {
	for _, tt := range []struct{ name, project, want string }{
		{"a preset", `{"presets":{"p":{"preset":"sandboxed"}}}`, `member "presets.p" stands in a project's file, which may define no presets`},
		{"a choice", `{"profiles":{"p":{"preset":"sandboxed"}}}`, `member "profiles.p.preset" stands in a project's file, which may choose no preset`},
		{"a profile in the place of a person's", `{"profiles":{"p":{"system":"of the project"}}}`, ""},
	} {
		home, cwd := t.TempDir(), t.TempDir()
		write(t, filepath.Join(home, "config.json"), `{"profiles":{"p":{"preset":"sandboxed","system":"of the person"}}}`)
		write(t, filepath.Join(cwd, ".nexus3", "config.json"), tt.project)
		c, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd)
		if tt.want != "" {
			if _, ok := errors.AsType[*config.FileError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want …%s…", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, err := c.Profile("p"); err != nil || p.Preset != "sandboxed" || p.System != "of the project" {
			t.Errorf("%s: %+v, %v", tt.name, p, err)
		}
	}
}

func TestPresetFaults(t *testing.T) {
	for text, want := range map[string]string{
		`{"trusted":{"preset":"yolo"}}`:                     `member "presets.trusted" is the name of a built-in preset`,
		`{"p":{"preset":"q"}}`:                              `member "presets.p.preset" is "q", want yolo, trusted or sandboxed`,
		`{"p":{}}`:                                          `member "presets.p.preset" is missing`,
		`{"":{"preset":"yolo"}}`:                            "the name of a preset: ",
		`{"p":{"preset":"yolo","paths":[]}}`:                `member "presets.p.paths" is not known`,
		`{"p":{"preset":"yolo","tools":{"x":{"allow":1}}}}`: `member "presets.p.tools.x.allow" is not known`,
	} {
		home := t.TempDir()
		write(t, filepath.Join(home, "config.json"), `{"presets":`+text+`}`)
		if _, err := config.Load([]string{"NEXUS_HOME=" + home}, home); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", text, err, want)
		}
	}
}
