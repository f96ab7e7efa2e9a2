package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A server on a copy of a home, and one on a restored backup, work beside the
// server of the home, which does not notice: once the first thing that the server
// on the copy did was to kill the other one with all of its agents.
func TestHomesOfOneOrigin(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	s.send("a", "My name is Alice")
	s.call("/", "create_key", `{"scope":"read","name":"dashboard"}`)
	s.call("/", "create_agent", `{"agent_id":"busy"}`)
	turn := make(chan string, 1)
	go func() { turn <- s.send("busy", "sleep 1000") }()
	eventually(t, "an agent works", func() (int, error) { return 0, s.busy("busy") })
	child, busy := s.pid("a"), s.pid("busy")
	top := t.TempDir()

	// nexus runs a verb and returns what it says.
	nexus := func(wantFailure bool, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(programs, "nexus"), args...)
		cmd.Env = []string{"HOME=" + top, "GORACE=atexit_sleep_ms=0"}
		out, err := cmd.CombinedOutput()
		if (err != nil) != wantFailure {
			t.Fatalf("nexus %s: %v\n%s", args[0], err, out)
		}
		return string(out)
	}
	// remembers starts a server on another home and asks its agent.
	remembers := func(home string) {
		t.Helper()
		other := &live{T: t, home: home, cwd: t.TempDir(), log: &bytes.Buffer{}}
		other.again()
		other.call("/", "create_agent", `{"agent_id":"a"}`)
		if answer := other.send("a", "What is my name?"); !strings.Contains(answer, "Alice") {
			t.Errorf("in %s the agent says %s", filepath.Base(home), answer)
		}
		if keys := other.call("/", "list_keys", `{}`); !strings.Contains(keys, `"dashboard"`) {
			t.Errorf("in %s the keys are %s", filepath.Base(home), keys)
		}
		if s.pid("a") != child || s.pid("busy") != busy || s.busy("busy") != nil {
			t.Errorf("the agents of the first server were touched by that of %s", filepath.Base(home))
		}
		other.end()
		for _, pid := range []int{s.cmd.Process.Pid, child, busy} {
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("process %d of the first server: %v", pid, err)
			}
		}
	}

	duplicate := filepath.Join(top, "copy")
	if out, err := exec.Command("cp", "-a", s.home, duplicate).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The key file in the copy is that of the first server: a verb for the home of
	// the copy is not for that server.
	_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), ":")
	if said := nexus(true, "shutdown", "--home", duplicate, "--port", port); !strings.Contains(said,
		"the server on port "+port+" is not that of "+duplicate+", which has none: start one on a free port with nexus serve 0 --home "+duplicate+"; or ") {
		t.Errorf("shutdown by the copy: %s", said)
	}
	remembers(duplicate)

	file, restored := filepath.Join(top, "home.tgz"), filepath.Join(top, "new", "home")
	nexus(false, "backup", file, "--home", s.home)
	whole, err := os.ReadFile(file)
	if info, failed := os.Stat(file); err != nil || failed != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v: %v", err, failed, info.Mode())
	}
	if said := nexus(true, "backup", file, "--home", s.home); !strings.Contains(said, file+" exists, and a backup does not replace a file: nothing was written") {
		t.Errorf("onto a file: %s", said)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("onto a file: it was changed, %v", err)
	}
	cut := filepath.Join(top, "cut.tgz")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if said := nexus(true, "restore", cut, "--home", restored); !strings.Contains(said, "it is no whole backup of nexus: it is cut off; nothing was restored") {
		t.Errorf("of a cut backup: %s", said)
	}
	if left, err := os.ReadDir(filepath.Dir(restored)); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cut backup left %v, %v", left, err)
	}
	pipe := filepath.Join(top, "pipe") // that nobody writes to
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := nexus(true, "restore", pipe, "--home", restored); !strings.Contains(said, "open "+pipe+": is not a regular file") {
		t.Errorf("of a pipe: %s", said)
	}
	nexus(false, "restore", file, "--home", restored)
	if said := nexus(true, "restore", file, "--home", restored); !strings.Contains(said, "is not empty") {
		t.Errorf("over a home: %s", said)
	}
	remembers(restored)
	if answer := s.send("a", "What is my name?"); !strings.Contains(answer, "Alice") {
		t.Errorf("the first agent says %s", answer)
	}
	s.call("/", "destroy_agent", `{"agent_id":"busy"}`)
	<-turn
	s.end()
}
