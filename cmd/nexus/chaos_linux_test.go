package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nexus.internal/cmd/internal/chaos"
)

// TestChaos attacks a real server for some seconds; make test does it for a
// minute. Nothing is kept if all is well.
func TestChaos(t *testing.T) {
	t.Parallel() // most of it is waiting
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(programs, "nexus"), "chaos", "--minutes", "0.1", "--seed", "3", "--agents", "6")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	for _, want := range []string{"seed 3\n", "kill server", "replayed", "to repeat the plan: --seed 3 --agents 6 --minutes 0.1\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(string(out), " ok\n"); n != 6 {
		t.Errorf("%d promises of 6 are said to have held:\n%s", n, out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestClusterChaos attacks a cluster for some seconds, make soak for a minute. Nothing is kept if all is well.
func TestClusterChaos(t *testing.T) {
	t.Parallel() // most of it is waiting
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(programs, "nexus"), "chaos", "--cluster", "3", "--minutes", "0.2", "--seed", "9", "--agents", "3")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "not tried") {
			t.Log(line)
		}
	}
	for _, want := range []string{"seed 9\n", "sends completed", "promises broken                              0\n", "to repeat the plan: --cluster 3 --seed 9 --agents 3 --minutes 0.2\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, args := range [][]string{{"--cluster", "6"}, {"--cluster", "1"}, {"--cluster", "3", "--kind", "acp", "--", "x"}} {
		out, err := exec.Command(filepath.Join(programs, "nexus"), append([]string{"chaos"}, args...)...).CombinedOutput()
		if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 2 || !strings.Contains(string(out), "--cluster") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}

// TestChaosOfPrograms attacks agents of other makes, one run for each protocol, by the program that misbehaves as
// it is told to. A driver that ends a turn twice, or forgets a process, breaks a promise.
func TestChaosOfPrograms(t *testing.T) {
	t.Parallel() // most of it is waiting
	fake := filepath.Join(t.TempDir(), "fakeagent")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", fake, "nexus.internal/fixtures/fakeagent").CombinedOutput(); err != nil {
		t.Fatalf("build fakeagent: %v\n%s", err, out)
	}
	for _, kind := range []string{"acp", "claude", "codex", "pi", "pipe"} {
		t.Run(kind, func(t *testing.T) {
			dir, state := t.TempDir(), t.TempDir()
			cmd := exec.Command(filepath.Join(programs, "nexus"), "chaos", "--minutes", "0.1", "--seed", "5", "--agents", "4", "--kind", kind,
				"--", fake, kind, "--fault", "by-prompt", "--state", state)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n := strings.Count(string(out), " ok\n"); n != 6 {
				t.Errorf("%d promises of 6 are said to have held:\n%s", n, out)
			}
			if again := "--minutes 0.1 --kind " + kind + " -- " + fake + " " + kind; !strings.Contains(string(out), again) {
				t.Errorf("the output lacks %q:\n%s", again, out)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if kept, err := os.ReadDir(state); err != nil || len(kept) == 0 {
				t.Errorf("no program has run: %v, %v", kept, err)
			}
		})
	}
}

// beginChaos starts an attack, as a user, in a temporary directory, and waits
// until its server is there.
func beginChaos(t *testing.T, uid int, flags ...string) (cmd *exec.Cmd, out *bytes.Buffer, dir string) {
	t.Helper()
	dir, out = t.TempDir(), &bytes.Buffer{}
	cmd = exec.Command(filepath.Join(programs, "nexus"), append([]string{"chaos", "--minutes", "5", "--seed", "3", "--agents", "4"}, flags...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir, "GORACE=atexit_sleep_ms=0"}
	if uid != os.Geteuid() {
		if err := errors.Join(os.Chmod(programs, 0o755), os.Chmod(filepath.Dir(dir), 0o711), os.Chown(dir, uid, uid)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	cmd.Stdout = out
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "quiet") || strings.Contains(lines.Text(), "attack") {
			return cmd, out, dir
		}
	}
	t.Fatalf("it ended:\n%s", out)
	return nil, nil, ""
}

// An attack that is interrupted before it came to anything promises nothing.
func TestChaosInterrupted(t *testing.T) {
	t.Parallel()
	cmd, out, _ := beginChaos(t, os.Geteuid())
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1", err)
	}
	if strings.Contains(out.String(), " ok\n") || !strings.Contains(out.String(), "the server was not killed and started again") {
		t.Errorf("something is promised:\n%s", out)
	}
}

// Nothing goes on when the command is killed: neither its later stages, which
// are in namespaces of their own, nor a server and its agents.
func TestChaosKilled(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) { killChaos(t, uid) })
		t.Run(name+", a cluster", func(t *testing.T) { killChaos(t, uid, "--cluster", "2") })
	}
}

func killChaos(t *testing.T, uid int, flags ...string) {
	t.Helper()
	cmd, _, dir := beginChaos(t, uid, flags...)
	there := func() (lines []string) {
		for _, pid := range processes(func(pid int) bool { return strings.Contains(describe(pid), dir) }) {
			lines = append(lines, describe(pid))
		}
		return lines
	}
	if before := there(); len(before) < 3 {
		t.Fatalf("only these run: %q", before)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing goes on", func() (struct{}, error) {
		if left := there(); len(left) > 0 {
			return struct{}{}, fmt.Errorf("%q", left)
		}
		return struct{}{}, nil
	})
}

// A server that dies by itself is what the report tells, with the end of its log,
// and nothing that it cannot answer any more is held against it besides.
func TestChaosServerDies(t *testing.T) {
	t.Parallel() // most of it is waiting
	const agents = 4
	script, dir := filepath.Join(t.TempDir(), "nexus"), t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\n(until [ $(grep -c 'agent ready' '%s/server-1.log') -ge %d ]; do sleep 0.1; done; sleep 2; kill -ABRT $$) &\nexec '%s' \"$@\"\n",
		dir, agents, filepath.Join(programs, "nexus"))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	report, err := chaos.Run(t.Context(), chaos.Options{
		Nexus: script, Seed: 3, Time: 5 * time.Minute, Agents: agents, Dir: dir, NoDisk: "a test", Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Join(report.Broken[chaos.Lives], "\n")
	if len(report.Counts) != 1 || !strings.Contains(told, "the server ended by itself: exit status 2; the end of ") {
		t.Errorf("got %q", report.Broken)
	}
	if !strings.Contains(told, "\n    SIGABRT: abort") {
		t.Errorf("the end of its log is missing: %q", told)
	}
}

func TestChaosUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--minutes", "0"}, {"--agents", "1"}, {"--seed", "x"}, {"more"}, {"--kind", "acp"}, {"--", "true"}, {"--port", "7"}, {"--home", "/"}, {"--json"}, {"--api-key", "k"}} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"chaos"}, args...)...)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 2 {
			t.Errorf("chaos %v: %v\n%s", args, err, out)
		}
	}
}
