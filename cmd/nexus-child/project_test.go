package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	file := filepath.Join(cwd, ".nexus3", "config.json")
	const mine = `"providers":{"mine":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}`
	for _, text := range []string{`{` + mine + `}`, `{` + mine + `,"default_model":"mine/m"}`} {
		write(text)
		if got := setModel("mine/m"); !strings.Contains(got, "provider mine is a project's own, of "+file) {
			t.Errorf("%s: set_model: %q", text, got)
		}
	}
	for _, text := range []string{`{bad`, `{"providers":{"openai":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}}`} {
		write(text)
		if got := setModel("openai/m"); got != "" { // the server's, by the broker
			t.Errorf("%s: set_model: %q", text, got)
		}
	}
}

// An agent that chose a provider of its own as the default model of its directory kept all agents that
// name no model from their start there.
func TestProjectsDefaultUnderABroker(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	file := filepath.Join(cwd, ".nexus3", "config.json")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"providers":{"ev":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}},"default_model":"ev/x"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flags       []string
		model, warn string
	}{
		{[]string{"--model-socket", filepath.Join(home, "socket")}, "offline", `configuration ` + file + `:1:95: member \"default_model\" chooses the provider \"ev\" of the project`},
		{nil, "x", ""},
	} {
		p := startChild(t, home, append([]string{"--cwd", cwd}, tt.flags...)...)
		p.send(`{"type":"get_state","id":"1"}`)
		if got := p.want("id", "1"); got.Get("model").String() != tt.model {
			t.Errorf("%v: %s, want model %q", tt.flags, got, tt.model)
		}
		p.stdin.Close()
		if status := p.wait(); status != 0 || !strings.Contains(p.stderr.String(), tt.warn) || tt.warn == "" && strings.Contains(p.stderr.String(), "left out") {
			t.Errorf("%v: exit status %d: %s", tt.flags, status, p.stderr.String())
		}
	}
}

// An agent that made pipes of its project's files could never be started again: the
// start waited for their other end, or was refused.
func TestProjectOfPipes(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(cwd, ".nexus3"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NEXUS.md", ".gitignore", ".nexus3/config.json", ".nexus3/mcp.json"} {
		if err := syscall.Mkfifo(filepath.Join(cwd, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := startChild(t, home, "--cwd", cwd, "--model-socket", filepath.Join(home, "socket"), "--model", "offline/offline")
	for _, command := range []string{
		`"set_system_prompt"`, `"set_cwd","cwd":"` + cwd + `"`, `"update_context","action":"add","context_type":"file","data":{"path":"NEXUS.md"}`,
	} {
		p.send(`{"id":"1","type":` + command + `}`)
		if got := p.want("id", "1"); !got.Get("ok").Bool() {
			t.Errorf("%s: %s", command, got)
		}
	}
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{"left out a file of the project", "NEXUS.md: is not a regular file", "left out the project's configuration", "config.json: is not a regular file"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("stderr does not say %q: %s", want, p.stderr.String())
		}
	}
}
