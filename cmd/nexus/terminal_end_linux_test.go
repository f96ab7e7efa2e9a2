package main_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// An agent that does nothing goes at the end of the talk for which it was made, with what it has created, and holds up no server.
func TestLeavingAgentsWithChildren(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	p := atTerminal(t, s.home, s.cwd, 100, "--fresh")
	p.sees(".1 · offline")
	s.call("/", "create_agent", `{"agent_id":"kid","parent_agent_id":".1"}`)
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("%v:\n%s", err, p.text())
	}
	if all := s.call("/", "list_agents", `{}`); gjson.Get(all, "result.agents.#").Int() != 0 {
		t.Errorf("there is %s", all)
	}
	if text := p.text(); strings.Contains(text, "goes on") {
		t.Error(text)
	}
}

// What is wrong with the URL of --connect is said of that, and of no flag that nobody gave.
func TestConnectingToAnotherPort(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	said, err := s.nexus("--connect", "http://127.0.0.1:1", "--plain")
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		said += string(exit.Stderr)
	}
	if !strings.Contains(said, "no server on port 1 (the URL of --connect), and the server of ") || !strings.Contains(said, ": leave the URL of --connect out, or name that port") {
		t.Errorf("%v: %s", err, said)
	}
}
