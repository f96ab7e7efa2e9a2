package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program is given models by a server's broker alone, and those that its protocol and nexus can speak with.
func TestModelsOfAProgramRefused(t *testing.T) {
	home := t.TempDir()
	config := `{"providers":{"chat":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ models, socket, want string }{
		{"chat", "", "--model-socket is missing"},
		{"offline", "/nowhere", "provider offline is of type offline, whose models no program of another make can be given"},
		{"nosuch", "/nowhere", "nosuch"},
	} {
		args := []string{"--no-session", "--program", `{"kind":"k","protocol":"pipe","command":["cat"],"models":"` + test.models + `"}`}
		if test.socket != "" {
			args = append(args, "--model-socket", test.socket)
		}
		p := command(t, home, nil, args...)
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if status := p.wait(); status != 2 || !strings.Contains(p.stderr.String(), test.want) {
			t.Errorf("%s: status %d, %s; want %s", test.models, status, p.stderr.String(), test.want)
		}
	}
}
