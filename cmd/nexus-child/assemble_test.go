package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// refused starts a child that must not start, and gives what it says.
func refused(t *testing.T, p *process) string {
	t.Helper()
	return refusedAs(t, p, 2)
}

// refusedAs is refused with another exit status.
func refusedAs(t *testing.T, p *process, want int) string {
	t.Helper()
	var out bytes.Buffer
	p.cmd.Stdout = &out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(); status != want || out.Len() > 0 {
		t.Errorf("status %d, want %d; stdout %q", status, want, out.String())
	}
	return p.stderr.String()
}

// A flag without a value was taken for one that was not given: the child began
// something else than it was told to.
func TestEmptyFlags(t *testing.T) {
	home := t.TempDir()
	for _, flag := range []string{
		"session", "continue", "session-dir", "system-file", "model", "provider", "profile", "cwd", "preset", "scenario",
		"parent-agent", "config", "pass-env",
	} {
		if got := refused(t, command(t, home, nil, "--"+flag, "")); !strings.Contains(got, "--"+flag+" is empty") {
			t.Errorf("--%s: %s", flag, got)
		}
	}
}

// Values that could mean nothing are refused, each with its reason.
func TestMeaninglessFlags(t *testing.T) {
	home := t.TempDir()
	for _, tt := range []struct{ flag, value, want string }{
		{"pass-env", "A,FOO=secret", `--pass-env: "FOO" has a value or is no variable's name, want names alone`},
		{"pass-env", "foo-bar", `--pass-env: "foo-bar" has a value or is no variable's name`},
		{"parent-agent", "a/b", `--parent-agent is "a/b", want the name of an agent`},
		{"permissions", `{"preset":"trusted","tools":{"shell":{"mode":""}}}`, `--permissions: member "tools.shell.mode" is "", want allow, ask or deny`},
		{"ceiling", `{"preset":"trusted","tools":{"shell":{"mode":""}}}`, `--ceiling: member "tools.shell.mode" is "", want allow, ask or deny`},
	} {
		got := refused(t, command(t, home, nil, "--"+tt.flag, tt.value))
		if !strings.Contains(got, tt.want) || strings.Contains(got, "secret") {
			t.Errorf("--%s %s: %s, want %s", tt.flag, tt.value, got, tt.want)
		}
	}
}

// An empty system prompt that was asked for holds, over those of the home, of a
// profile and of the session, and comes back.
func TestEmptySystemPrompt(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"NEXUS.md": "of the home", "config.json": `{"profiles":{"p":{"system":"of the profile"}}}`,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"begun without one", []string{"--session", "a", "--system", ""}, ""},
		{"it comes back", []string{"--session", "a"}, ""},
		{"another", []string{"--session", "a", "--system", "be kind"}, "be kind"},
		{"cleared", []string{"--session", "a", "--system="}, ""},
		{"and it comes back again", []string{"--continue", "a"}, ""},
		{"of the environment", []string{"--session", "a", "--system-env"}, "of $NEXUS3_SYSTEM"},
		{"it comes back, whatever the environment has", []string{"--continue", "a"}, "of $NEXUS3_SYSTEM"},
		{"over a profile", []string{"--session", "b", "--profile", "p", "--system", ""}, ""},
		{"a profile", []string{"--session", "b", "--profile", "p"}, "of the profile"},
		{"nothing said", []string{"--session", "c"}, "of the home"},
	} {
		p := command(t, home, []string{"NEXUS3_SYSTEM=of $NEXUS3_SYSTEM"}, append(tt.args, "--session-dir", sessions)...)
		p.start()
		p.send(`{"type":"get_state","id":"1"}`)
		if got := p.want("id", "1").Get("system_prompt").String(); got != tt.want {
			t.Errorf("%s: the system prompt is %q, want %q", tt.name, got, tt.want)
		}
		p.stdin.Close()
		p.wait()
	}
}

// A model's name goes into ready, get_state and more: a long one that was saved
// made a session that nobody could go on with.
func TestLongModelNames(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	config := `{"providers":{"any":{"type":"openai","auth_method":"none","base_url":"http://127.0.0.1:1"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("m", 257)
	if got := refused(t, command(t, home, nil, "--model", "any/"+long)); !strings.Contains(got, "model: the name is 257 bytes long, at most 256 are allowed") {
		t.Errorf("got %s", got)
	}
	p := startChild(t, home, "--session-dir", sessions, "--session", "s", "--model", "any/"+long[1:])
	p.send(`{"type":"set_model","id":"1","model":"` + strings.Repeat("m", 500_000) + `"}`)
	if got := p.want("id", "1"); got.Get("ok").Bool() || !strings.Contains(got.Get("error").String(), "the name is 500000 bytes long") {
		t.Errorf("got %.300s", got)
	}
	p.stdin.Close()
	p.wait()

	file := filepath.Join(sessions, "s.jsonl")
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(saved, []byte(long[1:]), []byte(long)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := refused(t, command(t, home, nil, "--session-dir", sessions, "--continue", "s")); !strings.Contains(got, "the model that the session saved: model: the name is 257 bytes long") {
		t.Errorf("got %s", got)
	}
	p = startChild(t, home, "--session-dir", sessions, "--continue", "s", "--model", "offline")
	p.stdin.Close()
	p.wait()
}

// A session that could not be begun leaves no file behind, which would be an
// empty session for whoever comes next.
func TestFullDiskLeavesNoSession(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	sessions := t.TempDir()
	p := command(t, t.TempDir(), nil)
	p.cmd.Path = shell
	p.cmd.Args = []string{"sh", "-c", `ulimit -f 0; exec "$@"`, "sh", os.Args[0], "--session-dir", sessions, "--session", "new"}
	if got := refused(t, p); !strings.Contains(got, "file too large") {
		t.Errorf("got %s", got)
	}
	if left, err := os.ReadDir(sessions); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Who made an agent, and how deep it stands, comes back with its session.
func TestParentComesBack(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	for _, tt := range []struct {
		name   string
		args   []string
		parent string
		depth  string // as the session has it
	}{
		{"begun", []string{"--session", "a", "--parent-agent", "boss", "--depth", "2"}, "boss", `"depth":2`},
		{"gone on with", []string{"--session", "a"}, "boss", `"depth":2`},
		{"insisted on", []string{"--continue", "a"}, "boss", `"depth":2`},
		{"of nobody", []string{"--session", "b"}, "", ""},
	} {
		p := startChild(t, home, append(tt.args, "--session-dir", sessions)...)
		p.send(`{"type":"get_state","id":"1"}`)
		if got := p.want("id", "1").Get("parent_agent_id").String(); got != tt.parent {
			t.Errorf("%s: the parent is %q, want %q", tt.name, got, tt.parent)
		}
		p.stdin.Close()
		p.wait()
		data, err := os.ReadFile(filepath.Join(sessions, tt.args[1]+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(data), `"depth":`); tt.depth == "" && got > 0 || tt.depth != "" && got != 1 || !strings.Contains(string(data), tt.depth) {
			t.Errorf("%s: the session says %s", tt.name, data)
		}
	}
}
