package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/homelock"
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

// What a talk has created, written to or brought back is of it, whatever its commands have said of that: the server ends with the
// talk, and temporary agents do. They were "not of this talk" but for `created NAME`.
func TestLeavingWhatCommandsHaveBrought(t *testing.T) {
	t.Parallel()
	begin, home, cwd := talker(t)
	if err := os.WriteFile(filepath.Join(cwd, "plan.json"), []byte(`{"tasks":[{"id":"a","type":"testing","description":"echo a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	first := begin(100, "--fresh")
	first.sees(".1 · offline")
	for _, agent := range []string{"w1", "w2", "w3", "w4", "w5"} {
		first.types("/create " + agent + "\r")
		first.sees("created " + agent)
		first.types("/send " + agent + " echo saved " + agent + "\r")
		first.sees("\nsaved " + agent)
	}
	first.types("/quit\r")
	if err := first.leaves(); err != nil || strings.Contains(first.text(), "goes on") {
		t.Errorf("%v:\n%s", err, first.text())
	}
	for _, tt := range []struct{ typed, want string }{
		{"/create w1", "continued w1 ("},
		{"/create w2 --json", `"agent_id":"w2"`},
		{"/send w3 echo it is back", "\nit is back"},
		{"/messages w4", "saved w4"},
		{"/plan plan.json --agents w5", "1 task"},
		{"/create bn2 -o name", "\nbn2\n"},
		{"/create .bn3 -o json", `"agent_id":".bn3"`},
		{"/clone w1 w6", "copied w1 to w6, which runs"},
		{"/rename w7 w8", "renamed w7 to w8"},
	} {
		p := begin(100, "--fresh")
		p.sees(" · offline")
		switch {
		case strings.HasPrefix(tt.typed, "/clone"): // of one that runs
			p.types("/create w1\r")
			p.sees("continued w1 (")
		case strings.HasPrefix(tt.typed, "/rename"):
			p.types("/create w7\r")
			p.sees("created w7")
		}
		p.types(tt.typed + "\r")
		p.sees(tt.want)
		p.types("/quit\r")
		if err := p.leaves(); err != nil || strings.Contains(p.text(), "goes on") {
			t.Errorf("%s: %v:\n%s", tt.typed, err, p.text())
		}
		if server, err := homelock.Find(home); err != nil || server.Runs {
			t.Errorf("%s: the server: %+v, %v", tt.typed, server, err)
			endLeftOver(home)
		}
	}
}

// A temporary session that a talk has brought back leaves with the talk, at a server of others, too, and can be gone on with once more. One
// that ran before stays.
func TestLeavingARestoredTemporaryAgent(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	talk := func(left int64, typed string, args ...string) {
		t.Helper()
		p := atTerminal(t, s.home, s.cwd, 100, args...)
		p.sees(".1 · offline")
		p.types(typed + "\r")
		p.sees("\n" + strings.TrimPrefix(typed, "echo "))
		eventually(t, "the turn does not end", func() (_ any, err error) { // what is at work stays
			if all := s.call("/", "list_agents", `{}`); gjson.Get(all, "result.agents.0.state").Str == "busy" {
				err = errors.New(all)
			}
			return nil, err
		})
		p.types("/quit\r")
		if err := p.leaves(); err != nil {
			t.Errorf("%q: %v:\n%s", args, err, p.text())
		}
		if all := s.call("/", "list_agents", `{}`); gjson.Get(all, "result.agents.#").Int() != left {
			t.Errorf("%q leaves %s", args, all)
		}
	}
	talk(0, "echo one", "--fresh")
	talk(0, "echo two", "--resume")
	talk(0, "echo three", "--session", ".1")
	talk(0, "echo four", "--agent", ".1")
	s.call("/", "load_session", `{"last":true}`)
	talk(1, "echo five", "--resume")
	if got := s.call("/agent/.1", "get_messages", `{}`); gjson.Get(got, "result.total").Int() != 10 {
		t.Errorf("of five talks there are %s", got)
	}
}
