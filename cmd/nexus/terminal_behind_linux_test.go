package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// halted has a server stand still for a while.
func (s *live) halted(t *testing.T, meanwhile func()) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }()
	eventually(t, "the server does not stand still", func() (any, error) { // on a busy machine a thread may go on for a moment
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return nil, errors.New(string(stat))
			}
		}
		return nil, nil
	})
	meanwhile()
}

// has waits until an agent's conversation has a text.
func (s *live) has(t *testing.T, agent, text string) {
	t.Helper()
	eventually(t, agent+" has no "+text, func() (any, error) {
		if messages := s.messages(agent); !strings.Contains(messages, text) {
			return nil, errors.New(messages)
		}
		return nil, nil
	})
}

// What is entered while a command is under way waits for its answer: it is for the agent, the permissions, the directory and the conversation
// that there are then. Sent at once, it went to the agent that was left, or ran in the directory before, or was taken back with what was undone.
func TestLinesBehindACommand(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"drawn": nil, "plain": {"--plain"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t, nil)
			other := filepath.Join(s.cwd, "elsewhere")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"main","preset":"trusted","default_cwd":%q}`, s.cwd))
			s.call("/", "create_agent", `{"agent_id":"zoe3"}`)
			p := atTerminal(t, s.home, s.cwd, 100, append(flags, "--connect="+s.url, "--agent=main")...)
			p.types("echo first\r")
			p.sees("you> echo first", "\nfirst")
			for _, step := range []struct {
				typed  string
				queued []string
				agent  string // that gets the message
				says   string
				sees   []string
			}{
				{"/whisper zoe3\recho w1\r/over\r", []string{"echo w1", "/over"}, "zoe3", "echo w1", []string{"whisper mode: zoe3", "returned to main"}},
				{"/undo\recho behind undo\r", []string{"echo behind undo"}, "main", "echo behind undo", []string{"you> echo behind undo", "\nbehind undo"}},
				{"/cwd elsewhere\rwrite here.txt: x\r", []string{"write here.txt: x"}, "main", "here.txt", []string{"wrote 1 bytes"}},
				{"/cwd missing\recho behind a failure\r", []string{"echo behind a failure"}, "main", "behind a failure", []string{"! ", "\nbehind a failure"}},
				{"/fork k11\recho to the copy\r", []string{"echo to the copy"}, "k11", "echo to the copy", []string{"k11 goes on from here", "\nto the copy"}},
				{"/agent zoe3\recho to zoe\r", []string{"echo to zoe"}, "zoe3", "echo to zoe", []string{"\nto zoe"}},
				{"/agent newer\ry\recho to the newer\r", []string{"y", "echo to the newer"}, "newer", "echo to the newer", []string{"\nto the newer"}},
			} {
				s.halted(t, func() {
					p.types(step.typed)
					for _, text := range step.queued {
						p.sees("queued: " + text)
					}
				})
				p.sees(step.sees...)
				s.has(t, step.agent, step.says)
			}
			if messages := s.messages("main"); strings.Contains(messages, "w1") || strings.Contains(messages, "echo first") || strings.Contains(messages, "to the ") {
				t.Errorf("main has %s", messages)
			}
			if _, err := os.Stat(filepath.Join(other, "here.txt")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ctrl-C takes back what waits for a command, and the end of the talk names it. Nothing waits for a command that waits for the turns of others, and some
// commands wait for none.
func TestTakingBackWhatWaitsForACommand(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	s.call("/", "create_agent", `{"agent_id":"zoe3"}`)
	p := atTerminal(t, s.home, s.cwd, 100, "--connect="+s.url, "--agent=main")
	p.types("echo first\r")
	p.sees("you> echo first", "\nfirst\n", ">\nmain · offline") // the turn has ended
	s.halted(t, func() {
		p.types("/status\recho never\r/cwd missing\r")
		p.sees("queued: echo never", "queued: /cwd missing", "2 queued")
		p.types("\x03")
		p.sees("· cancelled: echo never\n· cancelled: /cwd missing\n")
		p.types("echo nor this\r/help undo\r")
		p.sees("queued: echo nor this", "/undo [FLAGS]")
		p.types("/cancel\r")
		p.sees("· cancelled: echo nor this\n")
	})
	p.types("/send zoe3 sleep 600\r")
	eventually(t, "zoe3 is idle", func() (any, error) { return nil, s.busy("zoe3") })
	p.types("echo meanwhile\r")
	p.sees("you> echo meanwhile", "\nmeanwhile\n", ">\nmain · offline")
	s.halted(t, func() {
		p.types("/status\recho at the end\r/over\r/quit\r")
		p.sees("nexus: not sent: /over")
	})
	_ = p.leaves()
	s.call("/agent/zoe3", "shutdown", `{}`)
	text := p.text()
	if !strings.Contains(text, "nexus: not sent: echo at the end\nnexus: not sent: /over") {
		t.Errorf("it left with\n%s", text)
	}
	if messages := s.messages("main"); strings.Contains(messages, "never") || strings.Contains(messages, "nor this") || strings.Contains(messages, "at the end") {
		t.Errorf("main has %s", messages)
	}
}
