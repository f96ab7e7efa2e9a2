package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
)

// built builds a program of the tree, in a place of its own.
func built(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(source))
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, out)
	}
	return path
}

// nested are the flags for a child that runs another child as its program.
func nested(t *testing.T, dir string, command ...string) []string {
	t.Helper()
	program, err := json.Marshal(protocol.AgentProgram{Kind: "other", Protocol: "nexus", Command: command})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--session-dir", filepath.Join(dir, "sessions"), "--session-updates", "--program", string(program)}
}

// TestNestedChild runs a nexus-child of another build: here, of this one. It answers, is killed in
// mid-text, and goes on with its own conversation.
func TestNestedChild(t *testing.T) {
	home, path := t.TempDir(), built(t, "../../cmd/nexus-child")
	args := nested(t, home, path)
	p := startChild(t, home, append(args, "--session", "s")...)
	p.send(`{"type":"prompt","id":"1","message":"My name is Alice"}`)
	p.want("type", "agent_end")
	p.send(`{"type":"compact","id":"2"}`)
	if refused := p.want("id", "2"); refused.Get("reason").Str != "unsupported" {
		t.Errorf("compact: %s", refused.Raw)
	}
	p.send(`{"type":"prompt","id":"3","message":"count to 1000"}`)
	p.want("event.type", "text_delta")
	killProgram(t, path)
	if code := p.wait(); code != protocol.ExitProgram {
		t.Errorf("exit status %d, want %d", code, protocol.ExitProgram)
	}
	p = startChild(t, home, append(args, "--continue", "s")...)
	p.send(`{"type":"prompt","id":"4","message":"What is my name?"}`)
	p.want("type", "agent_end")
	p.send(`{"type":"get_state","id":"5"}`)
	if program := p.want("id", "5").Get("program"); program.Get("resumed").Str != "program" {
		t.Errorf("program: %s", program.Raw)
	}
	p.send(`{"type":"get_messages","id":"6"}`)
	if messages := p.want("id", "6").Get("messages").Array(); !strings.Contains(messages[len(messages)-1].Get("content").Str, "Alice") {
		t.Errorf("it does not remember: %s", messages[len(messages)-1].Raw)
	}
	p.send(`{"type":"prompt","id":"7","message":"count to 1000"}`)
	p.want("event.type", "text_delta")
	p.send(`{"type":"abort","id":"8"}`)
	if end := p.want("type", "agent_end"); end.Get("stop_reason").Str != "aborted" {
		t.Errorf("end: %s", end.Raw)
	}
	p.send(`{"type":"prompt","id":"9","message":"fail"}`)
	if failed := p.want("id", "9"); failed.Get("type").Str != "error" {
		t.Errorf("a turn that fails: %s", failed.Raw)
	}
	p.want("type", "agent_end")
	p.stdin.Close()
	p.wait()
}

// killProgram kills the process of that program.
func killProgram(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, e := range entries {
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe == path {
			if out, err := exec.Command("kill", "-9", e.Name()).CombinedOutput(); err == nil {
				killed++
			} else {
				t.Logf("kill: %s", out)
			}
		}
	}
	if killed == 0 {
		t.Fatal("the program does not run")
	}
}

// TestNestedChildAsks passes the questions of a nested child's tools to the parent.
func TestNestedChildAsks(t *testing.T) {
	home, path := t.TempDir(), built(t, "../../cmd/nexus-child")
	p := startChild(t, home, append(nested(t, home, path, "--approvals", "ask"), "--session", "s", "--approvals", "ask")...)
	p.send(`{"type":"prompt","id":"1","message":"run touch made"}`)
	asked := p.want("type", "permission_request")
	if asked.Get("tool_name").Str != "shell" || asked.Get("command").Str != "touch made" {
		t.Errorf("asked: %s", asked.Raw)
	}
	p.send(`{"type":"permission_response","id":"2","request_id":"` + asked.Get("request_id").Str + `","decision":"deny","reason":"not now"}`)
	if result := p.want("event.type", "toolcall_result"); !strings.Contains(result.Get("event.result").Str, "not now") {
		t.Errorf("result: %s", result.Raw)
	}
	p.want("type", "agent_end")
	p.stdin.Close()
	p.wait()
}

// TestNestedFaults has children that are none, and one that dies in its turn.
func TestNestedFaults(t *testing.T) {
	path, child := built(t, "../../fixtures/fakechild"), built(t, "../../cmd/nexus-child")
	for fault, want := range map[string]string{
		"wrong-version": "child speaks protocol version 2, want 1", "crash-at-start": "exit status 1",
	} {
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), child, append(nested(t, home, path, "--fault="+fault), "--session", "s")...)
		cmd.Env = []string{"NEXUS_HOME=" + home}
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %q", fault, err, out, want)
		}
	}
	home := t.TempDir()
	p := startChild(t, home, append(nested(t, home, path, "--fault=exit-3-in-turn"), "--session", "s")...)
	p.send(`{"type":"prompt","id":"1","message":"hello"}`)
	if code := p.wait(); code != protocol.ExitProgram || !strings.Contains(p.stderr.String(), "exit status 3") {
		t.Errorf("exit status %d, %s", code, p.stderr.String())
	}
}
