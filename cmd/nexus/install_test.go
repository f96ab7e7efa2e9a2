package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// make install puts the programs where they run already: a file that is executed
// cannot be written to ("Text file busy").
func TestInstallWhileRunning(t *testing.T) {
	makefile, err := filepath.Abs("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	source, prefix := t.TempDir(), filepath.Join(t.TempDir(), "a prefix")
	if err := os.Symlink(programs, filepath.Join(source, "bin")); err != nil {
		t.Fatal(err)
	}
	install := func() {
		t.Helper()
		// The programs are built already.
		cmd := exec.CommandContext(t.Context(), "make", "-f", makefile, "-C", source, "-o", "build", "install", "VERSION=test", "PREFIX="+prefix)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make install: %v\n%s", err, out)
		}
	}
	install()
	bin := filepath.Join(prefix, "bin")
	server := exec.Command(filepath.Join(bin, "nexus"), "serve", "0", "--home", filepath.Join(source, "home"))
	server.Env = append(os.Environ(), "NEXUS3_API_KEY=")
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait()); err != nil {
			t.Errorf("end the server: %v", err)
		}
	}()
	var port string
	for lines := bufio.NewScanner(stdout); port == "" && lines.Scan(); {
		if _, url, ok := strings.Cut(lines.Text(), "nexus listening on http://"); ok {
			port = url[strings.LastIndex(url, ":")+1:]
		}
	}
	ask := func(args ...string) {
		t.Helper()
		args = append([]string{"--home", filepath.Join(source, "home"), "--port", port}, args...)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "nexus-rpc"), args...)
		cmd.Env = server.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nexus-rpc %v: %v\n%s", args, err, out)
		}
	}
	ask("create", "before")
	install()
	ask("create", "after") // by the program that is there now
	ask("send", "before", "hello")
	entries, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{"nexus", "nexus-child", "nexus-rpc"}, names); diff != "" {
		t.Errorf("what is installed (-want +got):\n%s", diff)
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.Process.Pid))
	if err == nil && !strings.HasSuffix(running, " (deleted)") {
		t.Errorf("the server runs %s, which was not replaced", running)
	}
}
