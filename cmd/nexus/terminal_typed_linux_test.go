package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// In the lobby a key alone chooses. Any other line waits for whoever is chosen, in its order, and is named if nobody is.
func TestTypingInTheLobby(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(80, "--fresh")
	p.types("echo hello\r")
	p.sees("you> echo hello", "\nhello\n", "of 128.0k tokens")
	p.types("/save first\r")
	p.sees("saved as first", "first · offline")
	p.types("/quit\r")
	_ = p.leaves()

	p = begin(80)
	p.sees("[1/2/3, q to leave]:")
	p.types("echo 1st there\r")
	p.sees("queued: echo 1st there")
	for _, letter := range "quick" { // each comes alone, before the pause after which q leaves
		p.types(string(letter))
	}
	p.sees("> quick")
	p.types(" question\r")
	p.sees("queued: quick question")
	p.types("2")
	p.sees("you> echo 1st there", "\n1st there\n", "you> quick question", ".1 · offline")
	text := p.text()
	if strings.Index(text, "you> echo 1st there") > strings.Index(text, "you> quick question") {
		t.Errorf("the order:\n%s", text)
	}
	p.types("/quit\r")
	_ = p.leaves()

	p = begin(80)
	p.sees("q to leave]:")
	p.types("never said\rnor this")
	p.sees("queued: never said", "> nor this")
	p.types("\x03q")
	_ = p.leaves()
	if text := p.text(); !strings.Contains(text, "nexus: not sent: never said") || strings.Contains(text, "not sent: nor") {
		t.Errorf("it left with\n%s", text)
	}

	p = begin(80)
	p.sees("q to leave]:")
	p.types("/agent first\recho to the first\r2")
	p.sees("queued: echo to the first", " · offline", "first is saved (2 messages): restore it? y/n")
	p.types("y\r")
	p.sees("first · offline", "you> echo to the first", "\nto the first\n")
	p.types("/quit\r")
	_ = p.leaves()

	p = begin(80, "--plain")
	p.sees("q to leave]:")
	p.types("echo in lines\r")
	p.sees("· waits for a choice: echo in lines")
	p.types("3\r")
	p.sees("number or name, q to leave:")
	p.types("neither\r")
	p.sees("! none of these: neither")
	p.types("first\r")
	p.sees("you> echo in lines", "\nin lines")
	p.types("/quit\r")
	_ = p.leaves()
}

// By lines an approval is answered as in a send at a terminal. A line that is no answer is not sent behind the call: that
// is said, with the answers that there are. A message that waits is said to.
func TestAnswersByLines(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a","approvals":"ask","preset":"trusted","default_cwd":"`+s.cwd+`"}`)
	p := atTerminal(t, s.home, s.cwd, 100, "--plain", "--agent=a", "--connect="+s.url)
	const answers = "y once, s for this session, n no, n REASON tells the model why"
	p.sees("has proved to be")
	p.types("run touch b\r")
	p.sees(answers)
	p.types("maybe later\r")
	p.sees("! no answer, and not sent: maybe later\nwaits for your approval: a: ")
	if n := strings.Count(p.text(), answers); n != 2 {
		t.Errorf("the answers are named %d times:\n%s", n, p.text())
	}
	p.types("/help quit\r")
	p.sees("\n/quit\nLeave")
	p.types("n because\r")
	p.sees("· denied: ", "tool shell touch b failed", "because")
	p.types("run touch c\r")
	p.sees("touch c\"}")
	p.types("no\r")
	p.sees("tool shell touch c failed")
	p.types("run touch d\r")
	p.sees("touch d\"}")
	p.types("Yes\r")
	p.sees("· allowed: ", "tool shell touch d (")
	if _, err := os.Stat(filepath.Join(s.cwd, "b")); err == nil {
		t.Error("what was denied has run")
	}
	eventually(t, "the turn does not end", func() (any, error) { return nil, s.waiting("a", 0) })
	p.types("sleep 600\r")
	p.sees("you> sleep 600")
	p.types("echo after it\r")
	p.sees("· queued: echo after it")
	p.types("/cancel\r")
	p.sees("· cancelled", "you> echo after it", "\nafter it")
	if text := p.text(); strings.Contains(text, "you> maybe") || strings.Contains(text, "you> n because") {
		t.Errorf("what was no message was sent:\n%s", text)
	}
}

// What is typed or pasted behind the end of a talk is sent to nobody, and named whole.
func TestTypedBehindTheEnd(t *testing.T) {
	t.Parallel()
	const behind = "ünïcödé 漢字 😀 é\rand /more\r"
	const said = "nexus: not sent: ünïcödé 漢字 😀 é\r\n  and /more\r\n"
	for name, way := range map[string]struct {
		typed string
		flags []string
	}{
		"quit":   {typed: "echo one\recho two\r/quit\r" + behind},
		"marked": {typed: "/quit\r\x1b[200~" + behind + "\x1b[201~"},
		"ctrl-d": {typed: "\x04" + behind},
		"plain":  {typed: "/quit\r" + behind, flags: []string{"--plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"main"}`)
			for range 3 {
				p := atTerminal(t, s.home, s.cwd, 80, append(way.flags, "--connect="+s.url)...)
				p.sees("has proved to be")
				if way.flags == nil {
					p.sees("main · offline")
				}
				p.types(way.typed)
				_ = p.leaves()
				if text := p.written(); !strings.Contains(text, said) {
					t.Errorf("it left with\n%s\n%q", p.text(), text[max(0, len(text)-300):])
				}
			}
			if messages := s.messages("main"); strings.Contains(messages, "more") {
				t.Errorf("the agent has %s", messages)
			}
		})
	}
}

// By lines, too, nothing that is typed behind the end is left for the shell, which would carry it out: neither the line whose end does not come,
// nor what stands behind Ctrl-D, or there when a signal ends the talk. The terminal is as before then.
func TestTypedBehindTheEndByLines(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // .ci has its scripts, too
	}
	for name, way := range map[string]struct {
		typed, said string
		term        bool // a signal ends it
	}{
		"quit":    {typed: "/quit\rsome text behind it\recho EXECUTED > stray.txt", said: "nexus: not sent: some text behind it\n  echo EXECUTED > stray.txt\n"},
		"ctrl-d":  {typed: "\x04one more\recho EXECUTED > stray.txt", said: "nexus: not sent: one more\n  echo EXECUTED > stray.txt\n"},
		"sigterm": {typed: "echo EXECUTED > stray.txt", term: true, said: "nexus: not sent: echo EXECUTED > stray.txt\n"},
		"dumb":    {typed: "/quit\recho EXECUTED > stray.txt", said: "nexus: not sent: echo EXECUTED > stray.txt\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"main"}`)
			p := inTerminal(t, s.home, s.cwd, 120, bash, "--norc", "-i")
			command := filepath.Join(programs, "nexus") + " --plain --connect=" + s.url
			if name == "dumb" {
				command = "TERM=dumb " + strings.Replace(command, " --plain", "", 1)
			}
			p.types("PS1='shell \\#: '; " + command + "\r")
			p.sees("has proved to be")
			p.types("echo hello\r")
			p.sees("\nhello")
			p.types(way.typed)
			if way.term {
				p.sees(way.typed)
				job, err := unix.IoctlGetInt(int(p.pty.Fd()), unix.TIOCGPGRP)
				if err == nil {
					err = syscall.Kill(-job, syscall.SIGTERM)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p.sees(way.said, "\nshell 2:")
			p.types("\r")
			p.types("stty -a | grep -o ' icanon '; echo $((6*7))\r")
			p.sees("\n icanon\n42")
			if _, err := os.Stat(filepath.Join(s.cwd, "stray.txt")); err == nil {
				t.Errorf("the shell has carried out what was typed:\n%s", p.text())
			}
			p.types("exit\r")
			_ = p.leaves()
		})
	}
}
