package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// What a server starts does not hold the server's home: neither a child, nor
// what a child has left behind, in whatever session.
func TestNobodyInheritsTheHome(t *testing.T) {
	s := newLive(t, nil)
	lock := filepath.Join(s.home, "run", "lock")
	kept := filepath.Join(s.cwd, "pid")
	wrapper := filepath.Join(s.cwd, "child")
	script := "#!/bin/sh\nsetsid sh -c 'echo $$ >" + kept + ".new; mv " + kept + ".new " + kept + "; exec sleep 1000' </dev/null >/dev/null 2>&1 &\n" +
		"exec " + filepath.Join(programs, "nexus-child") + ` "$@"` + "\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.end()
	s.prepare = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--child", wrapper) }
	s.again()
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	child := s.pid("a")
	left := eventually(t, "the child leaves a process", func() (int, error) {
		text, err := os.ReadFile(kept)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	})
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) }) // the system may have done so
	if !holds(t, s.cmd.Process.Pid, lock) && os.Getuid() == 0 {
		t.Fatal("the server does not hold the lock that is looked for")
	}
	for _, pid := range []int{child, left} {
		if holds(t, pid, lock) {
			t.Errorf("process %d has the lock", pid)
		}
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	s.again()
	s.end()
}

// holds reports whether a process has the file open, as far as one may look: the
// server and the children show themselves to root alone.
func holds(t *testing.T, pid int, path string) bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == path {
			return true
		}
	}
	return false
}

// A server whose home was renamed, or whose lock was taken away, is not ready, and
// ends as any other.
func TestHomeTakenAway(t *testing.T) {
	for name, spoil := range map[string]func(home string) error{
		"renamed":    func(home string) error { return os.Rename(home, home+".old") },
		"lock moved": func(home string) error { return os.Rename(filepath.Join(home, "run", "lock"), home+".lock") },
		"run removed": func(home string) error {
			return os.RemoveAll(filepath.Join(home, "run"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"a"}`)
			s.send("a", "hello")
			ready := func() (int, string) {
				status, answer, err := request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
				if err != nil {
					t.Fatal(err)
				}
				return status, gjson.Get(answer, "checks.home").Str
			}
			if status, home := ready(); status != http.StatusOK || home != "ok" {
				t.Errorf("at first: HTTP %d, %q", status, home)
			}
			if err := spoil(s.home); err != nil {
				t.Fatal(err)
			}
			if status, home := ready(); status != http.StatusServiceUnavailable || !strings.Contains(home, "the home is not what it was") {
				t.Errorf("then: HTTP %d, %q", status, home)
			}
			s.end() // with status 0
		})
	}
}

// A server does not start on an audit log that is no plain file, and neither
// follows it nor waits for it.
func TestPlantedAuditLog(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink("/dev/null", path) },
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		home := filepath.Join(t.TempDir(), "home")
		if err := errors.Join(os.Mkdir(home, 0o700), plant(filepath.Join(home, "audit.jsonl"))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "nexus"), "serve", "0", "--home", home)
		out, err := cmd.CombinedOutput()
		cancel()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "audit.jsonl") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(home, "*.key")); left != nil {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}
