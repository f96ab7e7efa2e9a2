package mcpfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol/mcpfile"
)

// What is wrong with a file is told with the line and the column, as of config.json.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	for _, tt := range []struct{ text, want string }{
		{"", "no file"},
		{`{"mcpServers":{"s":{"command":"x","env":{"A":"${HOME}"}}}}`, ""},
		{"{\n \"servers\": {}}", `:2:2: member "servers" is not known`},
		{"{\"mcpServers\": {\n  \"s\": {}}}", `:2:3: member "mcpServers.s" has neither command nor url`},
		{"{\"mcpServers\": {\n  \"s\": {\"command\": \"x\",\n\"timeout_s\": 0}}}", `:3:1: member "mcpServers.s.timeout_s" must be above 0`},
		{"{\n}\n}", `:3:1: unexpected '}' after the end`},
		{strings.Repeat(" ", mcpfile.MaxSize+1), ": is larger than 1048576 bytes"},
	} {
		want := path + tt.want
		switch tt.want {
		case "no file", "":
			want = ""
		}
		if tt.want != "no file" {
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := "", mcpfile.Check(path)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%.80q: %q, want %q", tt.text, got, want)
		}
	}
	if fault, ok := errors.AsType[*mcpfile.Error](mcpfile.Check(filepath.Dir(path))); !ok || fault.Line != 0 {
		t.Errorf("a directory: %v", fault)
	}
}
