package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

func TestCheckToolName(t *testing.T) {
	for name, want := range map[string]string{
		"shell": "", "nexus_send": "", "mcp_files_read": "", "mcp_a-b_x_1a2b3c4d": "",
		"Shell":    `is "Shell", which is no tool; did you mean "shell"?`,
		"readfile": `is "readfile", which is no tool; did you mean "read_file"?`,
		"bash":     `is "bash", which is no tool, want a tool's name such as shell, or one of an MCP server such as mcp_files_read`,
		"":         `is "", which is no tool, want`, "mcp_": `is "mcp_", which is no tool, want`, "mcp_a b": `is "mcp_a b", which is no tool, want`,
		"mcp_" + strings.Repeat("x", 61): `which is no tool, want`,
	} {
		err := protocol.CheckToolName(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

func TestCheckTools(t *testing.T) {
	none := protocol.Permissions{}
	old := protocol.Permissions{DisabledTools: []string{"bash"}, Tools: map[string]protocol.ToolRule{"python": {}}}
	for _, tt := range []struct {
		name        string
		asked, held protocol.Permissions
		path        string // of the error; "" for none
	}{
		{"nothing", none, none, ""},
		{"known", protocol.Permissions{DisabledTools: []string{"shell", "mcp_a_b"}, Tools: map[string]protocol.ToolRule{"glob": {}}}, none, ""},
		{"unknown", protocol.Permissions{DisabledTools: []string{"shell", "bash"}}, none, "disabled_tools[1]"},
		{"a rule for an unknown one", protocol.Permissions{Tools: map[string]protocol.ToolRule{"python": {}}}, none, "tools.python"},
		{"unknown, and held already", old, old, ""},
	} {
		got := ""
		err := tt.asked.CheckTools(tt.held)
		if e, ok := errors.AsType[*strict.Error](err); ok {
			got = e.Path
		}
		if got != tt.path || (err == nil) != (tt.path == "") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.path)
		}
	}
	mixed := protocol.Permissions{DisabledTools: []string{"bash", "shell"}, Tools: map[string]protocol.ToolRule{"python": {}, "glob": {}}}
	if got := fmt.Sprint(mixed.KnownTools().DisabledTools, len(mixed.KnownTools().Tools)); got != "[shell] 1" {
		t.Errorf("got %s", got)
	}
	if diff := cmp.Diff([]string{"bash", "shell"}, mixed.DisabledTools); diff != "" {
		t.Errorf("the argument was changed: %s", diff)
	}
}
