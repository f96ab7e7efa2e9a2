package chaos_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/chaos"
)

// A process is found by its arguments and by its environment, and not once it
// has ended.
func TestProcessesWith(t *testing.T) {
	const mark = "86399.481516"
	for name, cmd := range map[string]*exec.Cmd{"arguments": exec.Command("sleep", mark), "environment": exec.Command("sleep", "86399")} {
		if name == "environment" {
			cmd.Env = []string{"MARK=" + mark}
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		found := chaos.ProcessesWith("no such thing", mark)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(found) != 1 || !strings.HasPrefix(found[0], "process "+strconv.Itoa(cmd.Process.Pid)+": ") {
			t.Errorf("by its %s: got %q", name, found)
		}
	}
	if found := chaos.ProcessesWith(mark); len(found) != 0 {
		t.Errorf("after its end: got %q", found)
	}
}
