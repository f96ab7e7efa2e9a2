package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An agent of a server may write its project's configuration itself. That gives
// it no model beside the broker's, and cannot keep it from coming back.
func TestProjectUnderABroker(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(cwd, ".nexus3"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cwd, ".nexus3", "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	setModel := func(model string) string {
		p := startChild(t, home, "--cwd", cwd, "--model-socket", filepath.Join(home, "socket"))
		p.send(`{"type":"set_model","id":"1","model":"` + model + `"}`)
		got := p.want("id", "1")
		p.stdin.Close()
		if status := p.wait(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		return got.Get("error").String()
	}
	write(`{"providers":{"mine":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}}`)
	if got := setModel("mine/m"); !strings.Contains(got, "provider mine is a project's own") {
		t.Errorf("set_model: %q", got)
	}
	for _, text := range []string{`{bad`, `{"providers":{"openai":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}}`} {
		write(text)
		if got := setModel("openai/m"); got != "" { // the server's, by the broker
			t.Errorf("%s: set_model: %q", text, got)
		}
	}
}
