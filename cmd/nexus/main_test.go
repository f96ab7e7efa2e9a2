package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs is the folder of the real programs, built for this run.
var programs string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" {
		os.Exit(curl(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if filepath.Base(os.Args[0]) == "ask-socket" {
		os.Exit(askSocket(os.Args[1], os.Stdout))
	}
	if filepath.Base(os.Args[0]) == "chat-agent" {
		os.Exit(chatAgent(os.Stdin, os.Stdout))
	}
	// In a script's background job, and under nohup: what the tests start would inherit it.
	for _, ignored := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(ignored) {
			signal.Notify(make(chan os.Signal, 1), ignored)
		}
	}
	os.Exit(buildAndRun(m))
}

// buildAndRun takes the programs that make has built, if they are as the test is. They
// lie where other users, whom some tests are, may execute them.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nexus-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := errors.Join(os.Chmod(dir, 0o755), takePrograms(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	release, err := guardPrograms(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer release()
	return m.Run()
}

// guardPrograms starts a process that outlives this one if this one is killed, as by
// go test's -timeout. It kills then what the tests left: all that runs a program of dir,
// and all that has dir in the environment that it got. The caller must call release.
func guardPrograms(dir string) (release func(), err error) {
	const variable = "NEXUS_TEST_PROGRAMS"
	cmd := exec.Command("sh", "-c", `
		read -r released && exit
		while
			found=
			for p in $(find /proc/[0-9]* -maxdepth 1 -name exe -lname "$0/*"; grep -lzxF "$1=$0" /proc/[0-9]*/environ); do
				p=${p#/proc/}
				kill -KILL "${p%%/*}" && found=yes
			done
			[ "$found" ]
		do :; done 2> /dev/null
		rm -rf "$0"`, dir, variable)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what ends our group does not end it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard the programs: %w", err)
	}
	return func() {
		_, _ = io.WriteString(stdin, "released\n") // of which it dies, or of the end of stdin
		_ = cmd.Wait()
	}, os.Setenv(variable, dir)
}

func takePrograms(dir string) error {
	if built := os.Getenv("NEXUS_BIN"); built != "" && (!raceEnabled || os.Getenv(killedInner) != "") {
		return os.CopyFS(dir, os.DirFS(built))
	}
	args := []string{"build", "-o", dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../nexus", "../nexus-child", "../nexus-rpc", "../nexus-cluster")...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// TestScripts runs every script of fixtures/scripts against the real programs,
// each with a home of its own. What a script starts is gone when it ends.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../fixtures/scripts",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("NEXUS_HOME", filepath.Join(env.WorkDir, "home"))
			env.Values[serverKey{}] = &server{}
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Defer(func() { endLeftOver(filepath.Join(env.WorkDir, "home")) })
			return nil
		},
		Cmds: scriptCommands,
		Condition: func(name string) (bool, error) {
			if name != "ipv6" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			listener, err := net.Listen("tcp", "[::1]:0")
			if err != nil {
				return false, nil
			}
			return true, listener.Close()
		},
	})
}

// endLeftOver ends servers that a failed script left in the background.
func endLeftOver(home string) {
	keys, _ := filepath.Glob(filepath.Join(home, "server-*.key")) // the pattern is well-formed
	for _, key := range keys {
		port := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(key), "server-"), ".key")
		_ = exec.Command(filepath.Join(programs, "nexus-rpc"), "--home", home, "--port", port, "shutdown").Run() // it may be gone
	}
}

// TestDemo runs what make demo runs.
func TestDemo(t *testing.T) {
	t.Parallel() // most of it is waiting
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "../../fixtures/scripts/demo.sh", programs)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, out)
	}
	for _, want := range []string{"Nice to meet you, Alice!", "19 20", "Your name is Alice.", "no process is left"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
}
