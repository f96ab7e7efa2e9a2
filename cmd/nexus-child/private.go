package main

import (
	"os"
	"path/filepath"
	"strings"

	"nexus.internal/child/blob"
	"nexus.internal/child/tool/file"
)

// private is what belongs to nexus itself and is none of an agent's business:
// the home with what matters in it, wherever links in it lead, and the directory
// of the session. Of one that the agent works in only what matters is.
func private(home, cwd, session string) []string {
	var all []string
	for _, name := range []string{"server.key", "config.json", "mcp.json", "NEXUS.md", "sessions", "run", "logs"} {
		all = append(all, filepath.Join(home, name))
	}
	// Without a home there are no further keys, and one that cannot be read holds
	// nothing that the agent could.
	entries, _ := os.ReadDir(home)
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "server") && strings.HasSuffix(name, ".key") {
			all = append(all, filepath.Join(home, name))
		}
	}
	if !leadsInto(home, cwd) {
		all = append(all, home)
	}
	if session == "" {
		return all
	}
	all = append(all, session, blob.Beside(session))
	if dir := filepath.Dir(session); !leadsInto(dir, cwd) {
		all = append(all, dir)
	}
	return all
}

// leadsInto reports whether path, through which no link leads, is dir or lies in
// it.
func leadsInto(dir, path string) bool {
	if real, err := file.Real(dir); err == nil {
		dir = real
	}
	relative, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(relative)
}
