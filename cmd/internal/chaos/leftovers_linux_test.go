package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/cmd/internal/chaos"
	"nexus.internal/protocol/proctree"
)

func nobody(int) bool { return false }

// What bears a number is found by that, though it has emptied its environment and
// left its session; and a server's tags are those between its record's name and
// the number that it bears.
func TestTags(t *testing.T) {
	const first, last = 1<<41 + 3<<24, 1<<41 + 4<<24 - 1
	start := func(number uint64, command string) (pid int) {
		cmd := exec.Command("sh", "-c", fmt.Sprintf("read go; %s & echo $!; wait", command))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: number, Max: number}, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	server := start(last, "sleep 86398")
	home := t.TempDir()
	for _, name := range []string{"run/trees/20000000000", fmt.Sprintf("run/trees/%x", uint64(first)), "run/trees/x"} {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	has, ok := chaos.TagsOf(server, home)
	if !ok || !has(first) || !has(last) || has(first-1) || has(last+1) {
		t.Errorf("the tags are not those from %d to %d", uint64(first), uint64(last))
	}
	stray := start(first+7, "setsid env -i sleep 86397")
	other := start(last+1, "sleep 86396")
	var found string
	for began := time.Now(); time.Since(began) < 10*time.Second && !strings.Contains(found, fmt.Sprintf("process %d: ", stray)); {
		// While it becomes setsid, env and sleep there are moments at which it has no arguments.
		found = strings.Join(chaos.ProcessesWith(func(pid int) bool { return has(proctree.LineageOf(pid)) }), "\n")
	}
	if !strings.Contains(found, fmt.Sprintf("process %d: ", stray)) || strings.Contains(found, fmt.Sprintf("process %d: ", other)) {
		t.Errorf("found %q, want %d and not %d", found, stray, other)
	}
	if _, ok := chaos.TagsOf(os.Getpid(), t.TempDir()); ok {
		t.Error("a server without a record has tags")
	}
}

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
		var found []string
		for began := time.Now(); time.Since(began) < 10*time.Second && len(found) == 0; {
			// As a program becomes another one there is a moment at which it has neither.
			found = chaos.ProcessesWith(nobody, "no such thing", mark)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(found) != 1 || !strings.HasPrefix(found[0], "process "+strconv.Itoa(cmd.Process.Pid)+": ") {
			t.Errorf("by its %s: got %q", name, found)
		}
	}
	if found := chaos.ProcessesWith(nobody, mark); len(found) != 0 {
		t.Errorf("after its end: got %q", found)
	}
}
