package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	return m.Run()
}

func takePrograms(dir string) error {
	if built := os.Getenv("NEXUS_BIN"); built != "" && !raceEnabled {
		return os.CopyFS(dir, os.DirFS(built))
	}
	args := []string{"build", "-o", dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../nexus", "../nexus-child", "../nexus-rpc")...)
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

// TestReadme runs the commands of the README as they stand there, on
// another port: with our own curl, and with the real one where there is one.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []struct{ language, name, interpreter, prepare, run string }{
		{"python", "program.py", "python3", "", "PYTHONPATH=CLIENTS/python python3 -B program.py"},
		{"ts", "program.mjs", "node", "mkdir node_modules; ln -s CLIENTS/typescript node_modules/nexus-client", "node program.mjs"},
	} {
		_, block, found := strings.Cut(string(text), "```"+program.language+"\n")
		block, _, _ = strings.Cut(block, "```")
		if !found {
			t.Errorf("the README has no program in %s", program.language)
		}
		if _, err := exec.LookPath(program.interpreter); err != nil {
			t.Logf("the README's program in %s is not run, as there is no %s here", program.language, program.interpreter)
			continue
		}
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			runReadmeProgram(t, block, program.name, program.prepare, program.run)
		})
	}
	for _, section := range []string{"Five minutes with curl", "At a terminal", "One agent over a pipe"} {
		script := shellBlocks(string(text), section)
		if script == "" {
			t.Errorf("the README has no sh block under %q", section)
			continue
		}
		usesCurl := strings.Contains(script, "curl ")
		if !strings.Contains(script, "nexus-rpc") {
			script += script // what the first run left in the home is in nobody's way
		}
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			runReadme(t, script, true)
		})
		if _, err := exec.LookPath("curl"); err == nil && usesCurl {
			t.Run(section+", with the real curl", func(t *testing.T) {
				t.Parallel()
				runReadme(t, script, false)
			})
		}
	}
}

// shellBlocks joins the sh blocks of one second-level section.
func shellBlocks(markdown, section string) string {
	_, rest, found := strings.Cut(markdown, "\n## "+section+"\n")
	if !found {
		return ""
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	var script strings.Builder
	for {
		_, after, found := strings.Cut(body, "```sh\n")
		if !found {
			return script.String()
		}
		block, remaining, _ := strings.Cut(after, "```")
		script.WriteString(block)
		body = remaining
	}
}
