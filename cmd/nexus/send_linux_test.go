package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// attended begins nexus-rpc send in a terminal.
func (s *live) attended(t *testing.T, columns int, args ...string) *person {
	t.Helper()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	return inTerminal(t, s.home, s.cwd, columns, append([]string{filepath.Join(programs, "nexus-rpc"), "--port", at.Port(), "send"}, args...)...)
}

// Who sends at a terminal sees the calls where they are made, and is asked for approvals: of the
// agent, once and for the session, with a reason, and by a slip of the keys not at all.
func TestASendAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","approvals":"ask","cwd":"`+s.cwd+`"}`)
	p := s.attended(t, 80, "a", "write a.txt: hello")
	p.sees("○ write_file a.txt", "● write_file (", "  wrote 5 bytes")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 80, "a", "run touch b")
	p.sees("○ shell touch b", "a waits for an approval:", `shell {"command":"touch b"}`, "allow it? y once, s for the session, n no, n REASON tells the model why:")
	p.types("what?\r")
	p.sees("one of these: y once, s for the session, n no, n REASON tells the model why:")
	if _, err := os.Stat(filepath.Join(s.cwd, "b")); err == nil {
		t.Error("it ran before the answer")
	}
	p.types("y\r")
	p.sees("● shell (", "shell gave:")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	if _, err := os.Stat(filepath.Join(s.cwd, "b")); err != nil {
		t.Error("it did not run")
	}
	p = s.attended(t, 80, "a", "run touch c")
	p.sees("tells the model why:")
	p.types("r\r")
	p.sees("the reason, for the model:")
	p.types("not that one\r")
	p.sees("✗ shell failed", "not that one")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}

	// Somebody else answers; an interrupt ends the turn and the question.
	p = s.attended(t, 80, "a", "run touch d")
	p.sees("tells the model why:")
	request := gjson.Get(s.call("/agent/a", "get_permissions", `{}`), "result.pending.0.request_id").Str
	s.call("/agent/a", "respond_permission", `{"request_id":"`+request+`","decision":"deny"}`)
	p.sees(request + " was denied")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 80, "a", "run touch f")
	p.sees("tells the model why:")
	p.types("\x04") // who does not want to answer leaves it to somebody else
	p.sees("answer with: nexus-rpc --port ")
	request = gjson.Get(s.call("/agent/a", "get_permissions", `{}`), "result.pending.0.request_id").Str
	s.call("/agent/a", "respond_permission", `{"request_id":"`+request+`","decision":"deny"}`)
	p.sees("✗ shell failed")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 80, "nobody", "hello")
	if err := p.leaves(); err == nil || !strings.HasPrefix(p.text(), "nexus-rpc: Agent not found: nobody") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 80, "a", "run touch e")
	p.sees("tells the model why:")
	second := s.attended(t, 80, "a", "echo after that")
	second.sees("a is at work: the message waits for its turn", "tells the model why:") // who answers first, answers
	notInQuestion(t, second)
	p.types("\x03")
	if err := p.leaves(); err == nil || !strings.Contains(p.text(), "the turn was cancelled") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	second.sees(" was cancelled", "\nafter that")
	if err := second.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, second.text())
	}
}

// notInQuestion fails if something was written behind a question, to which nothing was typed.
func notInQuestion(t *testing.T, p *person) {
	t.Helper()
	if text := p.text(); regexp.MustCompile(`tells the model why: +[^ \n]`).MatchString(text) {
		t.Errorf("something stands in the question:\n%s", text)
	}
}

// What a turn does while a question stands is no part of the question, which is asked again below it.
func TestAQuestionThatStandsWhileTheTurnGoesOn(t *testing.T) {
	t.Parallel()
	scenario := filepath.Join(t.TempDir(), "goes-on.json")
	if err := os.WriteFile(scenario, []byte(`{"after": "offline", "turns": [{"match": "make a worker", "steps": [
		{"tool": {"name": "nexus_create", "input": {"agent_id": "worker", "preset": "trusted"}}}, {"text": "The worker is there."}]}, {"match": "go on", "steps": [
		{"delay_ms": 2000}, {"text": "I go on."}, {"tool": {"name": "list_directory", "input": {"path": "."}}}, {"delay_ms": 600000}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--scenario", scenario) })
	s.call("/", "create_agent", `{"agent_id":"boss","approvals":"ask","cwd":"`+s.cwd+`"}`)
	s.send("boss", "make a worker")
	p := s.attended(t, 100, "boss", "go on")
	eventually(t, "the turn does not begin", func() (any, error) { return nil, s.busy("boss") })
	sent := make(chan string, 1)
	go func() { sent <- s.send("worker", "run touch made") }()
	const question = "allow it? y once, s for the session, n no, n REASON tells the model why:"
	p.sees("worker waits for an approval:", question, "I go on.\n○ list_directory .\n● list_directory (0.0 s)\n  [the directory is empty]\n"+question)
	notInQuestion(t, p)
	p.types("y\r")
	eventually(t, "the answer to the question below is none", func() (any, error) {
		return os.Stat(filepath.Join(s.cwd, "made"))
	})
	<-sent
	p.types("\x03")
	_ = p.leaves()
}

// That an agent is there again from its saved session is told to a person, and to no script.
func TestARestoredAgentAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","cwd":"`+s.cwd+`"}`)
	s.send("a", "say hello")
	s.end()
	s.again()
	p := s.attended(t, 100, "a", "echo it goes on")
	p.sees("nexus-rpc: a is restored from its saved session (2 messages)", "it goes on")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 100, "a", "echo once more")
	p.sees("once more")
	if err := p.leaves(); err != nil || strings.Contains(p.text(), "restored") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	s.end()
	s.again()
	out, err := exec.Command(filepath.Join(programs, "nexus-rpc"), "--home", s.home, "model", "a").CombinedOutput()
	if err != nil || string(out) != "offline/offline\n" {
		t.Errorf("a script sees %q, %v", out, err)
	}
}

// A turn that was halted goes on if the person wants that; elsewhere it is said.
func TestAHaltedSendAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","settings":{"max_iterations":1},"cwd":"`+s.cwd+`"}`)
	p := s.attended(t, 100, "a", "list .")
	p.sees("the turn was halted at its limit of model calls: go on? y/n")
	p.types("y\r")
	p.sees("I have no rule for \"Go on.\"")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 100, "a", "list .")
	p.sees("go on? y/n")
	p.types("n\r")
	if err := p.leaves(); err == nil || !strings.Contains(p.text(), "halted at its limit of model calls (max_iterations)") {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// What a tool or a model wrote is shown with what a terminal would act on escaped, and without
// styles where NO_COLOR asks for that.
func TestAHostileSendAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","preset":"trusted","cwd":"`+s.cwd+`"}`)
	if err := os.WriteFile(filepath.Join(s.cwd, "evil.txt"), []byte("\x1b]0;title\x07\x1b[2Jgone"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := s.attended(t, 80, "a", "read evil.txt")
	p.sees("○ read_file evil.txt", `\u001b]0;title\u0007\u001b[2Jgone`)
	if err := p.leaves(); err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	raw := p.raw.String()
	p.mu.Unlock()
	if strings.Contains(raw, "\x1b]") || strings.Contains(raw, "\x1b[2J") || !strings.Contains(raw, "\x1b[2m○ read_file") {
		t.Errorf("it showed %q", raw)
	}
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	at, _ := url.Parse(s.url)
	rpc := []string{filepath.Join(programs, "nexus-rpc"), "--port", at.Port()}
	p = inTerminal(t, s.home, s.cwd, 80, append(rpc, "list")...)
	p.sees("a ")
	if err := p.leaves(); err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	raw = p.raw.String()
	p.mu.Unlock()
	if !strings.HasPrefix(raw, "\x1b[1mAGENT  STATE ") {
		t.Errorf("it showed %q", raw)
	}
	p = inTerminal(t, s.home, s.cwd, 80, append([]string{env, "NO_COLOR=1"}, append(rpc, "send", "a", "list .")...)...)
	p.sees("○ list_directory", "● list_directory (")
	if err := p.leaves(); err != nil {
		t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.Contains(p.raw.String(), "\x1b") {
		t.Errorf("it showed %q", p.raw.String())
	}
}

// A message on stdin leaves the terminal to the answers. An answer that begins anew after a crash is whole.
func TestASendFromAPipeAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","approvals":"ask","cwd":"`+s.cwd+`"}`)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p := inTerminal(t, s.home, s.cwd, 80, sh, "-c", "echo run touch b | "+filepath.Join(programs, "nexus-rpc")+" --port "+at.Port()+" send a -")
	p.sees("tells the model why:")
	p.types("y\r")
	p.sees("● shell (")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	p = s.attended(t, 80, "a", "count to 60", "--on-crash", "retry")
	p.sees("1 2 3")
	if err := syscall.Kill(s.pid("a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.sees("the agent crashed; the answer begins anew\n1 2 3", "58 59 60")
	if err := p.leaves(); err != nil || strings.Count(p.text(), "60") != 1 {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// A call of an agent that the one at work created waits for the same person; one of another agent does not.
func TestASendOfAnAgentWithOthersBelowAtATerminal(t *testing.T) {
	t.Parallel()
	scenario := filepath.Join(t.TempDir(), "family.json")
	if err := os.WriteFile(scenario, []byte(`{"after": "offline", "turns": [{"match": "make a worker", "steps": [
		{"text": "I make one."}, {"tool": {"name": "nexus_create", "input": {"agent_id": "worker", "preset": "trusted", "initial_message": "run touch made"}}},
		{"text": "The worker is there."}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--scenario", scenario) })
	for _, name := range []string{"boss", "stranger"} {
		s.call("/", "create_agent", `{"agent_id":"`+name+`","approvals":"ask","cwd":"`+s.cwd+`"}`)
	}
	stranger := s.attended(t, 80, "stranger", "run touch elsewhere")
	stranger.sees("tells the model why:")
	p := s.attended(t, 80, "boss", "make a worker")
	p.sees("○ nexus_create worker", "worker waits for an approval:", `shell {"command":"touch made"}`, "tells the model why:")
	p.types("y\r")
	p.sees("● nexus_create (", "The worker is there.")
	if err := p.leaves(); err != nil || strings.Contains(p.text(), "stranger") || !strings.HasPrefix(p.text(), "I make one.\n○ nexus_create") || strings.Count(p.text(), "I make one.") != 1 {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	if _, err := os.Stat(filepath.Join(s.cwd, "made")); err != nil {
		t.Error("it did not run")
	}
	stranger.types("n\r")
	stranger.sees("✗ shell failed")
}
