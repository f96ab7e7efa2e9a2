package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/cmd/internal/config"
)

// A broken mcp.json takes all its servers from agents, so it is among the warnings as long as it is
// broken.
func TestWarningsOfServers(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load([]string{"NEXUS_HOME=" + home}, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "mcp.json")
	for _, tt := range []struct {
		text string
		want []string
	}{
		{`{"mcpServers":[]}`, []string{"agents that start have none of its MCP servers: " + path + `:1:2: member "mcpServers" must be an object, is an array`}},
		{`{"mcpServers":{}}`, nil},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, warningsOf(cfg)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
}
