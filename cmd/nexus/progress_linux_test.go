package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// How far a plan has come, and what is at work, stands below what is told of its tasks, and is gone at the end.
func TestAPlanAtATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scenario, plan := filepath.Join(dir, "play.json"), filepath.Join(dir, "plan.json")
	for path, text := range map[string]string{
		scenario: `{"after": "offline", "turns": [{"match": "take for ever", "steps": [{"hang": "until_aborted"}]},
			{"match": "be quick", "steps": [{"text": "{\"status\":\"success\",\"code\":\"\",\"explanation\":\"as asked\"}"}]}]}`,
		plan: `{"tasks": [{"id": "first", "type": "testing", "description": "be quick"},
			{"id": "second", "type": "testing", "description": "take for ever", "dependencies": ["first"]}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--scenario", scenario) })
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	rpc := []string{filepath.Join(programs, "nexus-rpc"), "--port", at.Port()}
	p := inTerminal(t, s.home, s.cwd, 80, append(rpc, "plan", plan, "--run", "r")...)
	p.sees("first: success: as asked\n", "second: begun by", "[##########----------] 1 of 2 tasks, ", ": second")
	p.types("\x03")
	if err := p.leaves(); err == nil || !strings.Contains(p.text(), "the run goes on") || strings.Contains(p.text(), "of 2 tasks") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	s.call("/", "cancel", `{"request_id":"r"}`)

	// Sessions of an earlier program, likewise, which need no server.
	p = inTerminal(t, s.home, dir, 80, rpc[0], "import", scenario, plan)
	if err := p.leaves(); err == nil || strings.Contains(p.text(), "of 2 files") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, shown, ok := strings.Cut(p.raw.String(), "[##########----------] 1 of 2 files, "); !ok || !strings.Contains(shown, ": plan.json") {
		t.Errorf("it showed %q", p.raw.String())
	}
}
