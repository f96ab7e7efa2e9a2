package mcp_test

import (
	"fmt"
	"os"
	"path/filepath"

	"nexus.internal/child/mcp"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "mcp")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "mcp.json")
	file := `{"mcpServers": {
		"github": {"command": "github-mcp", "env": {"TOKEN": "${GITHUB_TOKEN}"}, "allowed_tools": ["get_issue"]},
		"wiki":   {"url": "https://wiki.example/mcp", "timeout_s": 10}
	}}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range mcp.Load(mcp.Files{Personal: path}) {
		fmt.Printf("%s %v %q\n", s.Name, s.Timeout, s.Problem)
	}
	// Output:
	// github 1m0s "the variable GITHUB_TOKEN is not set for this agent, which TOKEN of mcp.json needs: the env of create_agent sets it (nexus-rpc create --env)"
	// wiki 10s ""
}
