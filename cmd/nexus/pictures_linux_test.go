package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"nexus.internal/fixtures"
	"nexus.internal/fixtures/picture"
)

// steady is what differs from run to run in the pictures.
var steady = []picture.Replacement{
	{What: regexp.MustCompile(`\(\d\.\d s\)`), By: "(0.1 s)"},
	{What: regexp.MustCompile(` \d s `), By: " 2 s "},
	{What: regexp.MustCompile(`\d\.\dk of 128`), By: "4.2k of 128"},
	{What: regexp.MustCompile(`p[a-z0-9]{10}-1`), By: "p7k2m9x4q1z-1"},
	{What: regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), By: "2026-01-20 10:15:00"},
}

// pictured compares a picture of README with what is shown, until they are the same: the cursor comes
// to its place behind the text.
func (p *person) pictured(name, title, from string) {
	p.Helper()
	name = "terminal/" + name + ".svg"
	patience := 30 * time.Second
	update := os.Getenv("UPDATE") == "1"
	if update {
		patience = time.Second
	}
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		svg, err := picture.SVG(p.screen, picture.Options{Title: title, From: from, Rows: 19, Cursor: true, Steady: steady})
		p.mu.Unlock()
		if err != nil {
			p.Fatal(err)
		}
		if !update && bytes.Equal(svg, fixtures.Read(p.T, name)) {
			return
		}
		select {
		case <-p.changed:
		case <-timeout:
			fixtures.Golden(p.T, name, svg)
			return
		}
	}
}

// played starts a server whose model plays a scenario, for agents in a directory of a Go program.
func played(t *testing.T, scenario string) *live {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(path, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--scenario", path) })
	source := "package greet\n\n// Hello greets.\nfunc Hello() string {\n\treturn \"hello\"\n}\n"
	if err := os.WriteFile(filepath.Join(s.cwd, "greet.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

var begun = regexp.MustCompile(`"created_at":"[^"]+"`)

// The lobby, with sessions of different ages.
func TestPictureOfTheLobby(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	ages := map[string]time.Duration{"release-notes": 75 * time.Hour, "parser": 26 * time.Hour, "payments": 2 * time.Hour}
	for name, turns := range map[string]int{"release-notes": 3, "parser": 12, "payments": 7} {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q}`, name))
		for range turns {
			s.call("/agent/"+name, "send", `{"content":"echo done"}`)
		}
	}
	s.call("/agent/payments", "send", `{"content":"echo done"}`) // the last one
	s.end()
	for name, age := range ages {
		at := time.Now().Add(-age - time.Minute)
		path := filepath.Join(s.home, "sessions", name+".jsonl")
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, begun.ReplaceAll(data, []byte(`"created_at":"2026-01-20T10:15:00Z"`)), 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.again()
	p := atTerminal(t, s.home, s.cwd, 80)
	p.sees("1) Resume: payments (2h ago, 16 messages)", "2) Fresh session", "3) Choose from saved …", "[1/2/3, q to leave]:")
	p.pictured("lobby", "The lobby: 1 resume the last session, 2 a fresh one, 3 choose from the saved ones", "nexus")
	p.types("q")
	_ = p.leaves()
}

// A conversation in which a file was changed.
func TestPictureOfAConversation(t *testing.T) {
	t.Parallel()
	s := played(t, `{"turns":[{"steps":[
		{"text":"I read the function first."},{"tool":{"name":"read_file","input":{"path":"greet.go"}}},
		{"tool":{"name":"edit_file","input":{"path":"greet.go","old_text":"func Hello() string {\n\treturn \"hello\"\n}","new_text":"func Hello(name string) string {\n\treturn \"hello, \" + name\n}"}}},
		{"text":"`+"`Hello`"+` takes **the name** of whom it greets. Nothing else calls it."}]}]}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--fresh")
	p.sees(".1 · offline")
	p.types("Have Hello greet people by their names\r")
	p.sees("Nothing else calls it.", ".1 · offline · trusted · ")
	p.types("and add a test")
	p.sees("> and add a test")
	p.pictured("conversation", "A conversation: the agent has read a file and changed it; the change is shown as a diff", "you> Have")
}

// A call of an agent that the one at work created waits for an approval.
func TestPictureOfAnApproval(t *testing.T) {
	t.Parallel()
	s := played(t, `{"turns":[{"match":"Release","steps":[{"text":"A worker of its own does the push."},
		{"tool":{"name":"nexus_create","input":{"agent_id":"worker","preset":"trusted","initial_message":"push v1.4.0"}}}]},
		{"match":"push","steps":[{"tool":{"name":"shell","input":{"command":"git tag v1.4.0\ngit push --tags origin main"}}}]}]}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--fresh")
	p.sees(".1 · offline")
	p.types("Release v1.4.0\r")
	p.sees("y once, n no", "○ nexus_create worker", "calling nexus_create")
	p.pictured("approval", "A shell command of a subagent waits for an approval: y once, n no, r no with a reason", "you> Release")
	p.types("n")
	p.sees(".1 · offline · trusted · ")
	p.types("/quit\r")
	_ = p.leaves()
}
