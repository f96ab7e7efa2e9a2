package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The list of things to do is there after a kill within the turn that changed it, and after a
// compaction the model is told of it; a new session has none.
func TestTodoOutlivesKillsAndCompactions(t *testing.T) {
	home := t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"turns":[
		{"match":"plan it","steps":[{"tool":{"name":"todo","input":{"items":[{"text":"build","status":"done"},{"text":"test <it>","status":"in_progress"}]}}},{"crash":"kill"}]},
		{"match":"show","steps":[{"tool":{"name":"todo","input":{}}},{"text":"shown"}]}
	],"after":"offline"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--scenario", scenario, "--session-dir", filepath.Join(home, "sessions")}
	p := startChild(t, home, append(args, "--session", "s")...)
	p.send(`{"type":"prompt","id":"1","message":"plan it"}`)
	p.wait() // it kills itself
	const want = "1. [done] build\n2. [in_progress] test <it>\n"

	p = startChild(t, home, append(args, "--continue", "s")...)
	state := func(id string) string {
		p.send(`{"type":"get_state","id":"` + id + `"}`)
		return p.want("id", id).Get("todo").Raw
	}
	if got := state("2"); got != `[{"text":"build","status":"done"},{"text":"test <it>","status":"in_progress"}]` {
		t.Fatalf("after the kill the list is %q", got)
	}
	p.send(`{"type":"prompt","id":"3","message":"show"}`)
	if got := p.want("event.type", "toolcall_result").Get("event.result").String(); got != want {
		t.Errorf("the tool shows %q", got)
	}
	p.want("type", "agent_end")
	for _, id := range []string{"4", "5"} {
		p.send(`{"type":"prompt","id":"` + id + `","message":"echo ` + strings.Repeat("long words ", 2000) + `"}`)
		p.want("type", "agent_end")
		p.send(`{"type":"compact","id":"c` + id + `","force":true}`)
		summary := p.want("id", "c"+id).Get("summary").String()
		if !strings.HasSuffix(summary, "Things to do, as the tool todo had them then:\n"+want) || strings.Count(summary, "in_progress") != 1 {
			t.Errorf("the summary is %q", summary)
		}
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()

	p = startChild(t, home, append(args, "--continue", "s")...)
	if got := state("6"); !strings.Contains(got, "test <it>") {
		t.Errorf("after the compaction and a kill the list is %q", got)
	}
	p.send(`{"type":"new_session","id":"7"}`)
	p.want("id", "7")
	if got := state("8"); got != "" {
		t.Errorf("a new session has the list %q", got)
	}
	p.stdin.Close()
	p.wait()
	p = startChild(t, home, append(args, "--continue", "s")...)
	if got := state("9"); got != "" {
		t.Errorf("the new session comes back with the list %q", got)
	}
	p.stdin.Close()
	p.wait()
}
