package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// What is taken from an agent whose program is confined holds at once: the program ends with its turn, and
// the next one begins within what is left. sandboxed confines a program that nothing confined before.
func TestNarrowedPrograms(t *testing.T) {
	t.Parallel()
	s, _, _ := newForeign(t)
	defer s.end()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("found it"), 0o600); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(s.cwd, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	read := "cat " + secret + " 2>/dev/null; true"
	for id, c := range map[string]struct{ more, before, after string }{
		"paths":  {`,"sandbox":true,"preset":"sandboxed"`, `{"preset":"sandboxed","allowed_paths":["` + outside + `"]}`, `{"preset":"sandboxed","allowed_paths":[]}`},
		"preset": {`,"sandbox":true,"preset":"trusted"`, `{"preset":"trusted"}`, `{"preset":"sandboxed"}`},
		"free":   {`,"preset":"trusted"`, `{"preset":"trusted"}`, `{"preset":"sandboxed"}`},
	} {
		s.createForeign(id, c.more)
		s.call("/agent/"+id, "set_permissions", c.before)
		if got := s.run(id, read); got != "found it" {
			t.Fatalf("%s: before: %s", id, got)
		}
		answer := s.sendAsync(id, ": >begun; sleep 300")
		if _, err := os.ReadFile(begun); err != nil { // once the program has opened it
			t.Fatal(err)
		}
		if got := s.call("/agent/"+id, "set_permissions", c.after); !gjson.Get(got, "result.updated").Bool() {
			t.Errorf("%s: %s", id, got)
		}
		if got := <-answer; !strings.Contains(got, "the permissions were changed") {
			t.Errorf("%s: the turn ended with %s", id, got)
		}
		if got := s.run(id, read+"; echo and lives"); got != "and lives\n" {
			t.Errorf("%s: afterwards: %s", id, got)
		}
		if got := s.call("/", "list_agents", `{}`); gjson.Get(got, `result.agents.#(agent_id=="`+id+`").restarts`).Int() != 0 {
			t.Errorf("%s: it counts as a crash: %s", id, got)
		}
	}
	if got := s.call("/", "create_agent", `{"agent_id":"both","kind":"shell","preset":"sandboxed","sandbox":false}`); !strings.Contains(got, "sandboxed confines all programs") {
		t.Errorf("sandboxed without walls: %s", got)
	}
}

// An agent that an agent wants outside of where it may work itself is refused before a process is started for it.
func TestAgentsOutsideOfTheirCeiling(t *testing.T) {
	t.Parallel()
	scenario := filepath.Join(t.TempDir(), "scenario.json")
	text := `{"turns":[{"match":"make it","steps":[{"tool":{"name":"nexus_create","input":{"agent_id":"out","cwd":"/"}}},{"text":"Done."}]}]}`
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--scenario", scenario) })
	defer s.end()
	s.create("boss", `{}`)
	s.send("boss", "make it")
	got := s.call("/agent/boss", "get_messages", `{}`)
	if !strings.Contains(got, "/ is outside of what this agent's ceiling allows: "+s.cwd) || strings.Contains(got, "start the agent's process") {
		t.Errorf("it was told: %s", got)
	}
}
