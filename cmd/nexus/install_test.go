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

// installer is a folder like that of the sources, whose programs are built already.
func installer(t *testing.T) (dir string, install func(variables ...string)) {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, target := range map[string]string{
		"bin": programs, "bridge": "", "child": "", "cmd": "", "supervisor": "", "CHANGELOG.md": "", "LICENSE": "", "NOTICE": "", "README.md": "", "SPEC.md": "",
	} {
		if target == "" {
			target = filepath.Join(top, name)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(variables ...string) {
		t.Helper()
		args := append([]string{"-f", filepath.Join(top, "Makefile"), "-C", dir, "install"}, variables...)
		cmd := exec.CommandContext(t.Context(), "make", args...)
		cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GO=/nowhere/go") // as sudo has it, without go
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make install: %v\n%s", err, out)
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A package is made of what make install puts below DESTDIR.
func TestInstallStaged(t *testing.T) {
	stage := filepath.Join(t.TempDir(), "a stage")
	_, install := installer(t)
	install("DESTDIR="+stage, "PREFIX=/usr/local")
	for dir, want := range map[string][]string{
		"bin":             {"nexus", "nexus-child", "nexus-rpc"},
		"share/doc/nexus": {"CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "SPEC.md", "bridge", "child", "cmd", "supervisor"},
		// SPEC links to them by these paths.
		"share/doc/nexus/bridge":     {"METHODS.md", "SECURITY.md"},
		"share/doc/nexus/child":      {"AGENT.md"},
		"share/doc/nexus/cmd":        {"OPERATIONS.md", "nexus-bench"},
		"share/doc/nexus/supervisor": {"SUPERVISION.md"},
	} {
		if diff := cmp.Diff(want, names(t, filepath.Join(stage, "usr/local", dir))); diff != "" {
			t.Errorf("what is in %s (-want +got):\n%s", dir, diff)
		}
	}
}

// make install puts the programs where they run already: a file that is executed
// cannot be written to ("Text file busy").
func TestInstallWhileRunning(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "a prefix")
	source, install := installer(t)
	install("PREFIX=" + prefix)
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
	install("PREFIX=" + prefix)
	ask("create", "after") // by the program that is there now
	ask("send", "before", "hello")
	if diff := cmp.Diff([]string{"nexus", "nexus-child", "nexus-rpc"}, names(t, bin)); diff != "" {
		t.Errorf("what is installed (-want +got):\n%s", diff)
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.Process.Pid))
	if err == nil && !strings.HasSuffix(running, " (deleted)") {
		t.Errorf("the server runs %s, which was not replaced", running)
	}
}
