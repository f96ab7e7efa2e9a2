package main_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// createFor has a machine make an agent for another one, in a directory.
func (s *live) createFor(creator, agent, cwd string) {
	s.Helper()
	if answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"parent_agent_id":%q,"cwd":%q}`, agent, creator, cwd)); gjson.Get(answer, "result.agent_id").Str != agent {
		s.Fatal(answer)
	}
}

// An agent shares the limits of the one that has created it, so it goes to no other machine than that, whether its machine drains or is lost. What was handed over is on all
// lists at once, and can be deleted.
func TestClusterFamilies(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	b.createIn("stays", filepath.Dir(shared)) // which is not shared
	b.createFor("stays", "kid", shared)
	b.createIn("lead", shared)
	family := []string{"lead", "lead-1", "lead-2", "lead-3"}
	for _, agent := range family[1:] {
		b.createFor("lead", agent, shared)
	}
	b.createIn("gone", shared)
	for _, agent := range append([]string{"stays", "kid", "gone"}, family...) {
		if answer := b.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	out, err := a.nexus("cluster", "drain", "b")
	if err != nil || !strings.Contains(out, "it follows stays, which has created it and stays: it works in ") {
		t.Errorf("the drain: %s, %v", out, err)
	}
	for _, s := range []*live{a, b, c} {
		list := s.call("/", "list_sessions", `{"limit":100}`)
		for _, agent := range append([]string{"gone", "kid"}, family...) {
			if !gjson.Get(list, fmt.Sprintf("result.sessions.#(name==%q)", agent)).Exists() {
				t.Errorf("right behind the drain %s is not on the list: %s", agent, list)
			}
		}
	}
	if answer := b.call("/", "delete_session", `{"session_name":"gone"}`); !gjson.Get(answer, "result.deleted").Bool() {
		t.Errorf("what was handed over is not deleted: %s", answer)
	}
	if of := a.owner("kid"); of != "b" {
		t.Errorf("an agent is of %q whose creator stays at b", of)
	}
	together := func() string {
		t.Helper()
		var all []string
		for _, agent := range family {
			all = append(all, b.owner(agent))
		}
		if all = slices.Compact(all); len(all) != 1 || all[0] == "" {
			t.Fatalf("a family is at the machines %q", all)
		}
		return all[0]
	}
	at := map[string]*live{"a": a, "c": c}[together()]
	if at == nil {
		t.Fatal("the family is at b still")
	}
	if out, err := a.nexus("cluster", "drain", "b", "--undo"); err != nil {
		t.Errorf("undo the drain: %s, %v", out, err)
	}
	if err := at.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = at.cmd.Wait() // that it was killed
	for _, agent := range family {
		untilMoved(t, b, agent)
	}
	together()
	at.again()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}

	b.createIn("mover", shared)
	if answer := b.send("mover", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait() // that it was killed
	untilMoved(t, a, "mover")
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for moved := time.Now(); time.Since(moved) < 6*time.Second; <-every.C { // each machine has its turn after 2 s more
		if answer := a.call("/agent/kid", "get_model", `{}`); gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
			t.Fatalf("an agent moves whose creator waits: %s", answer)
		}
	}
	b.again()
	for _, agent := range []string{"stays", "kid"} {
		untilMoved(t, b, agent)
		if of := b.owner(agent); of != "b" {
			t.Errorf("%s is of %q", agent, of)
		}
	}
	for _, s := range []*live{a, b, c} {
		s.end()
	}
}
