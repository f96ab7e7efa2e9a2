package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/bridge/homelock"
)

// Commands that cannot be meant say how they are typed here, and none names another program.
func TestMisusedCommandsAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(100, "--fresh")
	p.sees(".1 · offline")
	for _, s := range []struct{ typed, want string }{
		{"/rename", "! usage: /rename SESSION NAME"},
		{"/cwd a b", "! usage: /cwd [DIR]"},
		{"/tools x", "! usage: /tools\n"},
		{"/keys bogus", "! unknown verb \"bogus\": see /keys --help"},
		{"/rename nobody other", "See /sessions."},
		{"/send nobody hello", "See /list, or create the agent with /create."},
		{"/create bad/name", "! Invalid parameter agent_id"},
		{"/load", "! usage: /load SESSION"},
		{"/load nobody", "! no session nobody is saved: /sessions lists them"},
		{"/agent --yolo", "! usage: /agent [NAME]"},
		{"/agent a b", "! usage: /agent [NAME]"},
		{"/agent a --sandboxed --trusted", "! --trusted, --sandboxed and --yolo exclude each other"}, // the last one held
		{"/whisper", "! usage: /whisper NAME"},
		{"/over", "! /over is for whisper mode"},
		{"/fork", "! usage: /fork NAME"},
		{"/permissions bogus", "! Invalid parameter preset: want one of"},
		{"/permissions yolo", "! Invalid parameter preset: yolo"},
		{"/delete nobody", "! no session nobody"},
		{"/cancel nobody", "! nothing to cancel: the run nobody"},
		{"/cancel", "· nothing runs"},
		{"/messages", "· nothing\n"},
		{"/help destroy", "/destroy [AGENT]\nStop an agent and remove it"},
		{"/help bogus", "! no command /bogus: /help lists them"},
		{"/new conversation", "! usage: /new\n"}, // it would be lost
		{"/quit now", "! usage: /quit\n"},
		{"/compact --help", "/compact [FLAGS]\n"},
		{"/prompt", "\nPlatform: "},
		{"/prompt -", "! a talk has no stdin: name a file"},
		{"/plan -", "! a talk has no stdin: name a file"},
		{`/cwd "no such dir`, "! /cwd: a quote is not closed"},
		{`/cwd "no such dir"`, "! Invalid parameter cwd: working directory: stat"},
		{`/create kind --system "be kind"`, "created kind"},
		{`/deny nobody x --reason "a b"`, "! Agent not found: nobody"},
	} {
		p.types(s.typed + "\r")
		p.sees(s.want)
	}
	p.types("/quit\r")
	_ = p.leaves()
	if text := p.text(); strings.Contains(text, "nexus-rpc") {
		t.Errorf("another program is named:\n%s", text)
	}
}

// The value of a flag is no agent: the command is about the current one, unless another one is named before or behind its flags.
func TestFlagsOfCommandsAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(100, "--fresh")
	p.sees(".1 · offline")
	p.types("hello\r")
	p.sees("you> hello")
	p.types("/create other --approvals=ask\r")
	p.sees("created other")
	p.types("/messages --limit 1\r")
	p.sees("\nuser: hello")
	p.types("/status -o yaml\r")
	p.sees("agent_id: \".1\"")
	p.types("/status -o yaml other\r")
	p.sees("agent_id: other")
	p.types("/status other more -o yaml\r")
	p.sees(`! {"error":{"message":"usage: /status`)
	p.types("/stop -o json\r")
	p.sees(".1 · stopped")
	p.types("/destroy --bogus\r")
	p.sees("unknown flag: --bogus")
	p.types("/destroy -o name other\r")
	p.sees("\nother\n")
	p.types("/quit\r")
	_ = p.leaves()
	if text := p.text(); strings.Contains(text, "nexus-rpc") {
		t.Errorf("another program is named:\n%s", text)
	}
}

// What follows -- is the program of an agent of another make, with its flags: nothing is added to it, and it asks for no help.
func TestProgramsOfAgentsMadeAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(100, "--fresh")
	p.sees(".1 · offline")
	p.types("/create loud --kind pipe -- tr -s a-z\r")
	p.sees("created loud")
	p.types("/send loud hello\r")
	p.sees("\nhelo\n")
	p.types("/create count --kind pipe -- grep -h -c --approvals\r")
	p.sees("created count")
	p.types("/quit\r")
	_ = p.leaves()
}

// An agent that is created here asks for approvals, works where this talk does, and does not keep the server. The copy of
// one that runs, runs; a saved one that is written to comes back, and that is said.
func TestAgentsMadeAtATerminal(t *testing.T) {
	t.Parallel()
	begin, home, cwd := talker(t)
	below := filepath.Join(cwd, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	p := begin(100, "--fresh", "--cwd", below)
	p.sees(".1 · offline")
	p.types("/create bob --yolo\r")
	p.sees("! Invalid parameter --yolo: yolo cannot be granted")
	p.types("/create bob\r")
	p.sees("created bob", ".1 · offline")
	p.types("/agent bob --sandboxed\r")
	p.sees("bob runs already, and stays as it is: /permissions changes that. go to it? y/n")
	p.types("y\r")
	p.sees("bob · offline · trusted")
	p.types("run pwd > made\r")
	p.sees("y once")
	p.types("y")
	p.sees("shell gave:")
	if data, err := os.ReadFile(filepath.Join(below, "made")); err != nil || strings.TrimSpace(string(data)) != below {
		t.Errorf("it ran in %q (%v)", data, err)
	}
	p.types("/clone bob carol\r")
	p.sees("copied bob to carol, which runs")
	p.types("/destroy carol\r")
	p.sees("destroyed carol")
	p.types("/create s\r")
	p.sees("created s")
	p.types("/send s echo to a short name\r") // the name is in the command's
	p.sees("\ns:\nto a short name")
	p.types("/send carol echo it is back\r")
	p.sees("carol is restored from its saved session (", "\nit is back")
	p.types("/destroy carol\r")
	p.sees("\nit is back\ndestroyed carol")
	p.types("/load carol\r")
	p.sees("carol · offline · trusted")
	p.types("/whisper bob\r")
	p.sees("┌── whisper mode: bob", "bob · offline")
	p.types("/destroy\r")
	p.sees("destroy bob, which you talk to?")
	p.types("y\r")
	p.sees("destroyed bob\n└── returned to carol", "carol · offline")
	p.types("/rename carol dave\r")
	p.sees("renamed carol to dave", "dave · offline")
	p.types("/whisper emil\r")
	p.sees("create it? y/n")
	p.types("y\r")
	p.sees("┌── whisper mode: emil")
	p.types("/destroy dave\r")
	p.sees("destroyed dave")
	p.types("/over\r")
	p.sees("└── returned to dave", "· dave was removed", "1) Resume: ")
	p.types("q")
	if err := p.leaves(); err != nil || strings.Contains(p.text(), "the server goes on") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	if server, err := homelock.Find(home); err != nil || server.Runs {
		t.Errorf("the server: %+v, %v", server, err)
	}
}

// A person who goes to an agent that was made to refuse what needs an approval is asked; the server that was
// found is told, and when it ends that is told, too.
func TestASavedAgentAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"worker","cwd":"`+s.cwd+`"}`)
	s.call("/agent/worker", "send", `{"content":"echo before"}`)
	s.call("/", "destroy_agent", `{"agent_id":"worker"}`)
	p := atTerminal(t, s.home, s.cwd, 40, "--session", "worker")
	p.sees("· the server on port ", " has proved\nto be that of\n", "you> echo before", "worker · offline")
	p.types("echo 123456789a123456789b123456789c12345678z\r")
	p.sees("\n123456789a123456789b123456789c12345678z\n") // with its last character
	p.types("run touch made\r")
	p.sees("y once, s for this session, n no, r no\nwith a reason")
	p.types("y")
	p.sees("shell gave:")
	p.types("/cwd ma\t")
	p.sees("> /cwd made")
	p.types("\x15/agent wor\t")
	p.sees("> /agent worker")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.sees("! the server has ended")
	if err := p.leaves(); err == nil {
		t.Error("it ended well")
	}
}

// The last events are listed of an agent that has no process either, as after the death of a server. It gets one.
func TestEventsOfAnAgentWithoutAProcess(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.create("worker", `{}`)
	s.send("worker", "echo before")
	s.call("/agent/worker", "shutdown", `{}`)
	p := atTerminal(t, s.home, s.cwd, 200, "--connect", "--agent", "worker")
	p.sees("you> echo before", "worker · ")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // that it was killed
	s.again()
	p.types("/events 5\r")
	p.sees(` agent_state {"type":"agent_state","state":"starting"`)
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	s.end()
}

// A terminal that comes in the middle of a turn shows it from its begin, once; one that comes back to an agent shows
// nothing twice.
func TestComingIntoATurn(t *testing.T) {
	s := played(t, `{"after":"offline","turns":[{"match":"Look","steps":[{"text":"First I read."},
		{"tool":{"name":"read_file","input":{"path":"greet.go"}}},{"text":"Then I wait."},{"tool":{"name":"sleep","input":{"seconds":600}}}]}]}`)
	s.call("/", "create_agent", `{"agent_id":"main","approvals":"ask","cwd":"`+s.cwd+`"}`)
	s.call("/agent/main", "send", `{"content":"echo before"}`)
	first := atTerminal(t, s.home, s.cwd, 80, "--connect", "--agent", "main")
	first.sees("you> echo before\nbefore")
	first.types("Look at it\r")
	first.sees("Then I wait.", "○ sleep")
	second := atTerminal(t, s.home, s.cwd, 80, "--connect", "--agent", "main")
	second.sees("you> echo before\nbefore", "somebody> Look at it\nFirst I read.\n● read_file greet.go\n  package greet", "Then I wait.", "○ sleep", "calling sleep")
	second.types("\x1b")
	second.sees("· cancelled")
	first.sees("· cancelled")
	first.types("/agent other\r")
	first.sees("create it? y/n")
	first.types("y\r")
	first.sees("other · offline")
	second.types("echo meanwhile\r")
	second.sees("\nmeanwhile")
	first.types("/agent main\r")
	first.sees("you> echo meanwhile\nmeanwhile", "main · offline")
	first.types("echo together\r")
	first.sees("you> echo together\ntogether\n>\nmain · offline") // what is printed and the frame below it change one after the other
	for _, p := range []*person{first, second} {
		for text, want := range map[string]int{"Then I wait.": 1, "echo meanwhile": 1, "echo together": 1} {
			if p == first && text == "Then I wait." {
				want = 2 // as it came, and when it was come back to
			}
			if text == "echo together" && p == second {
				p.sees("somebody> echo together\ntogether")
			}
			if got := strings.Count(p.text(), text); got != want {
				t.Errorf("%q is shown %d times, want %d:\n%s", text, got, want, p.text())
			}
		}
	}
}

// An agent that was busy as a talk came to it is not said to be so after its turn: the end of a turn is told by no agent_state.
func TestTheEndOfATurnThatWasComeInto(t *testing.T) {
	t.Parallel()
	s := played(t, `{"after":"offline","turns":[{"match":"Look","steps":[{"tool":{"name":"sleep","input":{"seconds":600}}}]}]}`)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	s.call("/", "create_agent", `{"agent_id":"other"}`)
	go s.call("/agent/main", "send", `{"content":"Look","request_id":"r"}`) // it is cancelled below
	eventually(t, "no turn runs", func() (any, error) { return nil, s.busy("main") })
	first := atTerminal(t, s.home, s.cwd, 80, "--connect", "--agent", "main")
	beside := atTerminal(t, s.home, s.cwd, 80, "--connect", "--agent", "other")
	beside.sees("other · offline")
	beside.types("/whisper main\r")
	first.sees("main · calling sleep")
	beside.sees("main · busy")
	s.call("/agent/main", "cancel", `{"request_id":"r"}`)
	for _, p := range []*person{first, beside} {
		p.sees("· cancelled", "main · offline")
	}
}
