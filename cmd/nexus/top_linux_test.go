package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// A person looks at the agents, sorts them, cancels a turn, restarts and ends processes, talks to an agent in
// between, and leaves.
func TestTopAtATerminal(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	for _, id := range []string{"main", "worker"} {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"approvals":"ask"}`, id))
	}
	p := atTerminal(t, s.home, s.cwd, 80, "top", "--sort", "agent")
	p.sees("nexus top · 2 agents: 2 ready", "▼AGENT", "\nmain     ready", "\nworker   ready", "main · ready · offline · trusted · process", "processor")
	s.call("/", "create_agent", `{"agent_id":"third","initial_message":"sleep 600"}`)
	p.sees("3 agents: 1 busy, 2 ready", "\nthird    busy")
	p.types("\x1b[B")
	p.sees("third · busy · offline · trusted · process", " · turn ")
	p.types("c")
	p.sees("third: cancelled", "3 agents: 3 ready")
	p.types("c")
	p.sees("third runs no turn")
	before := s.pid("third")
	p.types("r")
	p.sees("end the process of third and start it again? y/n")
	p.types("n")
	p.sees("↑↓ choose")
	p.types("ry")
	p.sees("third: restarted")
	if after := s.pid("third"); after == before {
		t.Errorf("the process is %d as before", after)
	}
	p.types("ky")
	p.sees("third: killed", "3 agents: 2 ready, 1 stopped", "third    stopped       -      -")
	p.types("\x1b[C")
	p.sees("▼STATE")
	p.types("i")
	p.sees("▲STATE")
	p.types("\x1b[H")
	p.types("\x1b[B")
	p.sees("worker · ready")
	p.types("\r")
	p.sees("worker · offline")
	p.types("echo said from top\r")
	p.sees("\nsaid from top")
	p.types("/quit\r")
	p.sees("nexus top · 3 agents")
	if err := pty.Setsize(p.pty, &pty.Winsize{Rows: 10, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.screen.Resize(40, 10)
	p.mu.Unlock()
	p.sees("AGENT     ▲STATE      CPU% MEMORY TOKENS\n", "q quit  ↑↓ choose  ←→ sort  i invert  e…")
	p.types("q")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// A server that goes away is told, and one that comes back is shown.
func TestTopWithoutItsServer(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	p := atTerminal(t, s.home, s.cwd, 120, "top")
	p.sees("1 agent: 1 ready")
	s.end()
	p.sees("no answer: this is as it was when the server answered last") // while it is asked again
	s.again()
	p.sees("nexus top · 0 agents", "no agents")
	p.types("\x03")
	_ = p.leaves()
}

// However it ends, the terminal is as it was: it echoes, has its cursor, and shows what it showed.
func TestTheTerminalAfterTop(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(p *person){
		"q": func(p *person) { p.types("q") }, "ctrl-c": func(p *person) { p.types("\x03") },
		"sigterm": func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
		"sighup":  func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGHUP) },
		"sigint":  func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newLive(t, nil)
			p := atTerminal(t, s.home, s.cwd, 80, "top")
			p.sees("nexus top · 0 agents", "no agents")
			if p.state().Lflag&unix.ECHO != 0 {
				t.Error("what is typed is echoed by the terminal")
			}
			leave(p)
			if err := p.leaves(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if after := p.state(); after != p.before {
				t.Errorf("the terminal was %+v and is %+v", p.before, after)
			}
			p.mu.Lock()
			raw := p.raw.String()
			p.mu.Unlock()
			for _, mode := range []struct{ what, on, off string }{
				{"a hidden cursor", "\x1b[?25l", "\x1b[?25h"}, {"a screen of its own", "\x1b[?1049h", "\x1b[?1049l"}, {"marks of pasted text", "\x1b[?2004h", "\x1b[?2004l"},
			} {
				if strings.LastIndex(raw, mode.on) > strings.LastIndex(raw, mode.off) {
					t.Errorf("the terminal is left with %s", mode.what)
				}
			}
		})
	}
}

// What others wrote acts on nothing.
func TestHostileTextsInTop(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	cwd := filepath.Join(t.TempDir(), "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\n\u009b5n")
	if err := os.Mkdir(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(cwd)
	if err != nil {
		t.Fatal(err)
	}
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"x","cwd":%s}`, quoted))
	p := atTerminal(t, s.home, s.cwd, 200, "top")
	p.sees(`\u001b]0;owned\u0007\u001b[2J\u202egnp.exe\n\u009b5n`)
	p.types("q")
	_ = p.leaves()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bad := range []string{"\x1b]0;owned", "\u202e", "\u009b"} {
		if strings.Contains(p.raw.String(), bad) {
			t.Errorf("%q reached the terminal", bad)
		}
	}
}

// Top that is suspended leaves the terminal to the shell until it goes on. What the terminal says of itself, however late, the shell does not take for typed.
func TestASuspendedTop(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	p := inTerminal(t, s.home, s.cwd, 80, bash, "--norc", "-i")
	p.late.Store(int64(100 * time.Millisecond))
	p.types("PS1='shell: '; " + filepath.Join(programs, "nexus") + " top\r")
	p.sees("1 agent: 1 ready")
	p.types("\x1a")
	p.sees("Stopped")
	eventually(t, "the terminal has not answered", func() (_ any, err error) {
		if !p.answered.Load() {
			err = errors.New("not yet")
		}
		return nil, err
	})
	p.types("stty -a | grep -o ' echo '; echo $((6*7))\r")
	p.sees("\n echo\n42")
	s.call("/", "create_agent", `{"agent_id":"second"}`)
	p.types("fg\r")
	p.sees("2 agents: 2 ready")
	p.types("q")
	p.sees("\nshell:")
	p.types("echo $((6*8)); exit\r")
	p.sees("\n48")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	if strings.Contains(p.text(), "2027") {
		t.Errorf("the shell reads what the terminal answers:\n%s", p.text())
	}
}
