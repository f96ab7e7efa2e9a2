package main_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killedInner is set for the test process that is killed, which takes the programs of NEXUS_BIN as they are.
const killedInner = "NEXUS_TEST_KILLED"

// A test process that is killed, as by go test's -timeout, leaves nothing behind: neither
// a server nor a shell that waits for one.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(killedInner) != "" {
		script := exec.Command("sh", "-c", programs+`/nexus serve 0 --home "$0" & while :; do sleep 1; done`, os.Getenv(killedInner))
		script.Stdout = os.Stdout
		_ = script.Run()
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedInner+"="+t.TempDir(), "NEXUS_BIN="+programs)
	cmd.Stdout = w // which the shell and the server have, too
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // if it fails
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "nexus listening on ") {
		t.Fatalf("the server said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := io.Copy(io.Discard, out); err != nil { // ends with the last process that has w
		t.Errorf("a process of the killed test is left: %v", err)
	}
}
