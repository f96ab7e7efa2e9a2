package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A verb that is ended while it starts a server takes the server with it, or has named it; and it ends by the signal.
func TestEndingAVerbThatStartsAServer(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			port, err := freePort("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			home := filepath.Join(t.TempDir(), "home")
			cmd := exec.Command(filepath.Join(programs, "nexus-rpc"), "--home", home, "--port", port, "create", "w")
			var said bytes.Buffer
			cmd.Dir, cmd.Stderr = t.TempDir(), &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { endLeftOver(home) })
			eventually(t, "no server is started", func() (any, error) {
				logs, err := filepath.Glob(filepath.Join(home, "logs", "server-*.log"))
				if err == nil && len(logs) == 0 {
					err = errors.New("it has no log")
				}
				return nil, err
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			err = cmd.Wait()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != sig {
				t.Errorf("it ended with %v: %s", err, &said)
			}
			left := servers(home) // none is left, or it was named
			if named := strings.Contains(said.String(), "started a server"); left != "" && !named {
				t.Errorf("a server is left: %s\n%s", left, &said)
			}
		})
	}
}

// servers are the command lines of servers of a home.
func servers(home string) (all string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, file := range files {
		line, _ := os.ReadFile(file) // or it has ended
		if args := string(line); strings.Contains(args, "\x00serve\x00") && strings.Contains(args, "\x00"+home+"\x00") {
			all += fmt.Sprintln(args)
		}
	}
	return all
}
