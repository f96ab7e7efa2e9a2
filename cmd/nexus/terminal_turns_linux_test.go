package main_test

import (
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// dropped has a send wait for the agent, and cancels it.
func (s *live) dropped(t *testing.T, agent, id string) {
	t.Helper()
	over := make(chan string, 1)
	go func() {
		over <- s.call("/agent/"+agent, "send", `{"content":"echo never","request_id":"`+id+`"}`)
	}()
	eventually(t, "it does not wait", func() (any, error) { return nil, s.waiting(agent, 1) })
	s.call("/agent/"+agent, "cancel", `{"request_id":"`+id+`"}`)
	if answer := <-over; !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("the send that waited was answered with %s", answer)
	}
}

// A message that waits and is cancelled, by somebody else, ends nothing of what is shown of the turn that runs: neither
// its calls nor the question about them, and Esc cancels that turn.
func TestACancelledMessageBehindATurn(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	for _, name := range []string{"main", "asks", "quiet"} {
		s.call("/", "create_agent", `{"agent_id":"`+name+`","approvals":"ask","preset":"trusted","cwd":"`+s.cwd+`"}`)
	}
	p := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url, "--agent=main")
	p.sees("main · offline")
	p.types("sleep 600\r")
	p.sees("main · calling sleep")
	s.dropped(t, "main", "1")
	p.types("/help quit\r") // what comes after the event
	p.sees("\nLeave\n", "main · calling sleep")
	p.types("\x1b")
	p.sees("· cancelled", "✗ sleep ")
	if text := p.text(); strings.Contains(text, "did not come to an end") || strings.Count(text, "· cancelled") != 1 {
		t.Errorf("it shows\n%s", text)
	}

	p.types("/agent asks\r")
	p.sees("\nasks · offline")
	p.types("run touch b\r")
	p.sees("y once")
	s.dropped(t, "asks", "1")
	p.types("y")
	p.sees("· allowed: ", "● shell touch b")

	sends := s.attended(t, 80, "quiet", "sleep 600")
	sends.sees("○ sleep ")
	s.dropped(t, "quiet", "1")
	come := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url, "--agent=main") // by /whisper it comes into the turn without its begin
	come.sees("main · offline")
	come.types("/whisper quiet\r")
	come.sees("whisper mode: quiet")
	s.dropped(t, "quiet", "2")
	come.types("\x1b")
	come.sees("· cancelled")
	sends.sees("✗ sleep failed (")
	if err := sends.leaves(); err == nil {
		t.Error("a send that was cancelled has status 0")
	}
}

// What a call took is told by nobody who stood still while it ended.
func TestTheTimeOfACallDuringAStop(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]struct{ command, says, begun, ended string }{
		"talk":  {"nexus --verbose --agent a --connect=", "a · offline", "a · calling sleep", "● sleep "},
		"plain": {"nexus --plain --agent a --connect=", "has proved", "", "tool sleep "},
		"send":  {"nexus-rpc send a 'sleep 1' --port ", "", "○ sleep", "● sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"a","preset":"trusted","cwd":"`+s.cwd+`"}`)
			at, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			to := s.url
			if name == "send" {
				to = at.Port()
			}
			p := inTerminal(t, s.home, s.cwd, 200, bash, "--norc", "-i")
			p.types("PS1='shell \\#: '; " + programs + "/" + how.command + to + "\r")
			if name != "send" {
				p.sees(how.says)
				p.types("sleep 1\r")
			}
			if how.begun != "" {
				p.sees(how.begun)
			} else {
				eventually(t, "the turn does not begin", func() (any, error) { return nil, s.busy("a") })
			}
			p.types("\x1a")
			p.sees("Stopped", "shell 2:")
			p.types("sleep 3; fg\r")
			p.sees(how.ended)
			line := regexp.MustCompile(regexp.QuoteMeta(how.ended) + `.*`).FindString(p.text())
			if strings.Contains(line, " s)") {
				t.Errorf("it shows %q", line)
			}
			if name == "send" {
				return
			}
			p.types("sleep 1\r")
			p.sees(" s)") // as long as it is awake it knows
			p.types("/quit\r")
			p.sees("shell 3:")
		})
	}
}

// Of a turn whose process has crashed nobody knows the tokens.
func TestTheTokensOfACrash(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","preset":"trusted","cwd":"`+s.cwd+`"}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--verbose", "--agent=a", "--connect="+s.url)
	p.sees("a · offline")
	p.types("sleep 600\r")
	p.sees("a · calling sleep")
	if err := syscall.Kill(s.pid("a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.sees("! crashed: ")
	if text := p.text(); strings.Contains(text, "tokens in") || !strings.Contains(text, " s\n! crashed") {
		t.Errorf("it shows\n%s", text)
	}
	p.types("echo on\r")
	p.sees("tokens in, ")
}

// asleepWithAMessage is a talk with an agent that sleeps, behind which a message waits.
func asleepWithAMessage(t *testing.T) (*live, *person) {
	t.Helper()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","preset":"trusted","cwd":"`+s.cwd+`"}`)
	p := atTerminal(t, s.home, s.cwd, 200, "--agent=a", "--connect="+s.url)
	p.sees("a · offline")
	p.types("sleep 600\r")
	p.sees("a · calling sleep")
	p.types("echo on\r")
	p.sees("1 queued")
	return s, p
}

// After a kill of the server each message that is lost is named, but for the one whose turn ran, which is shown.
func TestTheCrashOfAMessageThatWaited(t *testing.T) {
	t.Parallel()
	s, p := asleepWithAMessage(t)
	other := atTerminal(t, s.home, s.cwd, 200, "--agent=a", "--connect="+s.url)
	other.sees("a · calling sleep")
	other.types("echo of the other\r")
	eventually(t, "they are not at the server", func() (any, error) { return nil, s.waiting("a", 2) })
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.prepare = func(cmd *exec.Cmd) { cmd.Args[len(cmd.Args)-1] = at.Port() }
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.again()
	p.sees("! crashed: the server ended before", "! echo on: Execution failed: the server ended before", "! crashed: a message of somebody else: the server ended before")
	p.types("echo further\r")
	p.sees("\nfurther\n")
	if text := p.text(); strings.Count(text, "the server ended before the turn did") != 3 {
		t.Errorf("it shows\n%s", text)
	}
}

// A crash is told once, also where the process is started again at once as a message waits.
func TestACrashBeforeAMessage(t *testing.T) {
	t.Parallel()
	s, p := asleepWithAMessage(t)
	if err := syscall.Kill(s.pid("a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.sees("! crashed: ", "· the agent's process is started again\n", "you> echo on\non\n")
	if text := p.text(); strings.Count(text, "signal: killed") != 1 {
		t.Errorf("it shows\n%s", text)
	}
}
