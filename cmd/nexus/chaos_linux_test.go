package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestChaos attacks a real server for some seconds; make test does it for a
// minute. Nothing is kept if all is well.
func TestChaos(t *testing.T) {
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
	if n := strings.Count(string(out), " ok\n"); n != 5 {
		t.Errorf("%d promises of 5 are said to have held:\n%s", n, out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestChaosUsage(t *testing.T) {
	for _, args := range [][]string{{"--minutes", "0"}, {"--agents", "1"}, {"--seed", "x"}, {"more"}} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"chaos"}, args...)...)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 2 {
			t.Errorf("chaos %v: %v\n%s", args, err, out)
		}
	}
}
