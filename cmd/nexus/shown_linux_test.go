package main_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/greeting"
)

// A terminal acts on nothing in a path that stdout has, and whoever starts a server reads which path it is.
func TestHostilePathsOnStdout(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "h\x1b[31m")
	server := exec.Command(filepath.Join(programs, "nexus"), "serve", "0", "--home", home)
	server.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	_, key, err := greeting.Read(io.TeeReader(stdout, &said))
	if failed := server.Process.Signal(os.Interrupt); failed != nil {
		t.Error(failed)
	}
	if failed := server.Wait(); failed != nil {
		t.Error(failed)
	}
	if err != nil || filepath.Dir(key) != home || strings.Contains(said.String(), "\x1b") {
		t.Errorf("the key file is %q, %v, as it says %q", key, err, &said)
	}
	out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "init", filepath.Join(t.TempDir(), "e\x1b[31m"), "a=h:1", "b=h:2").CombinedOutput()
	if err != nil || strings.Contains(string(out), "\x1b") || !strings.Contains(string(out), `e\u001b[31m`) {
		t.Errorf("%v: %q", err, out)
	}
}
