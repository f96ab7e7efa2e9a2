package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nexus.internal/child/sandbox"
)

var confinements = map[string]sandbox.Rules{
	"unconfined": {},
	"trusted":    {Confinement: sandbox.WherePossible, ReadOnly: []string{"/"}, Network: true},
	"sandboxed":  {Confinement: sandbox.Always, ReadOnly: []string{"/"}},
	"sharing":    sharing(nil), // a network that each test makes
}

// Whatever a program does to get away, an abort leaves nothing of it.
func TestAbort(t *testing.T) {
	for name, rules := range confinements {
		if name == "sharing" {
			rules.Loopback = newLoopback(t)
		}
		for _, tt := range []struct {
			name string
			argv []string
			here int // lines until all are there
		}{
			{"one", role("stubborn"), 1},
			{"setsid", role("escape", "stay"), 2},
			{"shell", sh("trap '' TERM; sleep 1000 & sleep 1000 | sleep 1000 & echo here; wait"), 1},
			{"stopped", sh("echo here; kill -STOP $$"), 1},
			{"deep", sh(`n=0; f() { n=$((n+1)); if [ $n -lt 100 ]; then ( f ); else echo here; sleep 1000; fi; true; }; f`), 1},
			{"storm", sh(`i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; echo here; wait`), 1},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				ctx, abort := context.WithCancel(t.Context())
				p, err := sandbox.Start(ctx, sandbox.Spec{Argv: tt.argv, Rules: rules, Env: []string{"TAG=" + tag(t)}})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				hear(p.Stdout(), tt.here)
				if len(tagged(t, tag(t))) == 0 {
					t.Fatal("the test sees no process")
				}
				abort()
				exit := p.Wait()
				none(t, tag(t))
				if exit != (sandbox.Exit{Code: -1, Signal: syscall.SIGKILL}) {
					t.Errorf("exit %+v", exit)
				}
				if _, err := io.ReadAll(p.Stdout()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A program that has exited takes with it what it left behind, also what holds
// its output, and its exit status is its own.
func TestLeaves(t *testing.T) {
	for _, tt := range []struct {
		name string
		argv []string
		code int
	}{
		{"nothing", sh("exit 3"), 3},
		{"a background process", sh("sleep 1000 & echo here; exit 4"), 4},
		{"a session of its own", append(sh(`"$@" & read line; exit 5`), append([]string{"sh"}, role("escape", "stay")...)...), 5},
		{"a daemon", role("daemon"), 0},
		{"comets", role("comet"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, sandbox.Spec{Argv: tt.argv})
			exit := p.Wait()
			none(t, tag(t))
			if exit != (sandbox.Exit{Code: tt.code}) {
				t.Errorf("exit %+v, want code %d", exit, tt.code)
			}
			if _, err := io.ReadAll(p.Stdout()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSignalled(t *testing.T) {
	_, exit := output(t, sandbox.Rules{}, "", sh("kill -SEGV $$")...)
	if want := (sandbox.Exit{Code: -1, Signal: syscall.SIGSEGV}); exit != want {
		t.Errorf("exit %+v, want %+v", exit, want)
	}
}

// Where the machine has no memory left, the kernel ends programs before everything else.
func TestOutOfMemoryScore(t *testing.T) {
	p := newPlace(t)
	for name, rules := range map[string]sandbox.Rules{"unconfined": {}, "confined": p.trusted()} {
		if score, exit := output(t, rules, p.work, "cat", "/proc/self/oom_score_adj"); score != "1000\n" {
			t.Errorf("the score of a program that is %s: %q, %+v", name, score, exit)
		}
	}
}

// supervised starts a child that is not us, with a program of its own, and
// returns when that runs.
func supervised(t *testing.T, argv ...string) (child *exec.Cmd, stdin io.Closer, says *bufio.Reader) {
	t.Helper()
	args := role("supervised", append([]string{tag(t)}, argv...)...)
	child = exec.Command(args[0], args[1:]...)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe() // at its end the child kills the program
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		child.Process.Kill()
		child.Wait()
		none(t, tag(t))
	})
	says = bufio.NewReader(stdout)
	if line, err := says.ReadString('\n'); line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return child, stdin, says
}

func TestChildKilled(t *testing.T) {
	child, _, _ := supervised(t, role("escape", "stay")...)
	pids := tagged(t, tag(t))
	if len(pids) != 2 {
		t.Fatalf("processes %v, want two", pids)
	}
	ends := watchAll(t, pids)
	child.Process.Kill()
	awaitEnds(t, ends)
}

// A reaper that was stopped wakes when the child dies, and does its work.
func TestChildKilledWhileReaperStopped(t *testing.T) {
	child, _, _ := supervised(t, append(sh(`read line; kill -STOP $PPID; exec "$@"`), append([]string{"sh"}, role("escape", "stay")...)...)...)
	pids := tagged(t, tag(t))
	if len(pids) != 2 {
		t.Fatalf("processes %v, want two", pids)
	}
	ends := watchAll(t, pids)
	child.Process.Kill()
	awaitEnds(t, ends)
}

// The child kills what a reaper could not.
func TestReaperKilled(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			child, _, says := supervised(t, role("escape", "stay")...)
			pids := tagged(t, tag(t))
			reaper := parent(t, pids[0])
			if reaper == child.Process.Pid {
				reaper = parent(t, pids[1])
			}
			if parent(t, reaper) != child.Process.Pid {
				t.Fatalf("%d is not the child's reaper", reaper)
			}
			syscall.Kill(reaper, signal)
			if line, err := says.ReadString('\n'); line != "ended -1 killed\n" {
				t.Fatalf("%q, %v", line, err)
			}
			none(t, tag(t))
		})
	}
}

// A program that stops its reaper is only a little harder to kill.
func TestReaperStopped(t *testing.T) {
	_, stdin, says := supervised(t, sh("read line; kill -STOP $PPID; echo here; sleep 1000")...)
	stdin.Close()
	if line, err := says.ReadString('\n'); line != "ended -1 killed\n" {
		t.Fatalf("%q, %v", line, err)
	}
	none(t, tag(t))
}

// What the program was told by a pipe, and what it says, arrives.
func TestPipes(t *testing.T) {
	var stderr strings.Builder
	p := start(t, sandbox.Spec{Argv: sh("cat; echo oops >&2"), Stdin: true, Stderr: &stderr})
	says := bufio.NewReader(p.Stdout())
	for i := range 3 {
		fmt.Fprintln(p.Stdin(), "line", i)
		if line, err := says.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	p.Stdin().Close()
	if rest, err := io.ReadAll(says); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if exit := p.Wait(); exit != (sandbox.Exit{}) || stderr.String() != "oops\n" {
		t.Errorf("exit %+v, stderr %q", exit, stderr.String())
	}
}

// A closed output is seen although the program, and the reaper, live on.
func TestClosesOutput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := sandbox.Start(ctx, sandbox.Spec{Argv: sh("exec >&- 2>&-; sleep 1000")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if text, err := io.ReadAll(p.Stdout()); len(text) > 0 || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if ctx.Err() != nil {
		t.Error("it was seen when the program was killed")
	}
}

// Output that nobody has read yet outlives the program.
func TestOutputAfterEnd(t *testing.T) {
	p := start(t, sandbox.Spec{Argv: sh("head -c 60000 /dev/zero")})
	p.Wait()
	if text, err := io.ReadAll(p.Stdout()); len(text) != 60000 || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestCannotStart(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		spec sandbox.Spec
		want string
	}{
		{"no program", t.Context(), sandbox.Spec{}, "start program: no program"},
		{
			"unknown", t.Context(),
			sandbox.Spec{Argv: []string{"no-such-program"}},
			`start no-such-program: exec: "no-such-program": executable file not found in $PATH`,
		},
		{
			"no file", t.Context(),
			sandbox.Spec{Argv: []string{"/no/such"}},
			`start /no/such: exec: "/no/such": stat /no/such: no such file or directory`,
		},
		{
			"no directory", t.Context(),
			sandbox.Spec{Argv: []string{"true"}, Dir: "/no/such"},
			"start true: working directory: stat /no/such: no such file or directory",
		},
		{
			"a file", t.Context(),
			sandbox.Spec{Argv: []string{"true"}, Dir: "/dev/null"},
			"start true: working directory: chdir /dev/null: not a directory",
		},
		{"aborted", gone, sandbox.Spec{Argv: []string{"true"}}, "start true: context canceled"},
		{
			"relative rule", t.Context(),
			sandbox.Spec{Argv: []string{"true"}, Rules: sandbox.Rules{ReadWrite: []string{"a"}}},
			`start true: rules: "a" is not an absolute, clean path`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := sandbox.Start(tt.ctx, tt.spec)
			if err == nil {
				p.Close()
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// A program that stops its reaper gains nothing: the call went on to its timeout.
func TestReaperIsStopped(t *testing.T) {
	if text, exit := output(t, sandbox.Rules{}, "", sh("kill -STOP $PPID; echo on; exit 4")...); text != "on\n" || exit.Code != 4 {
		t.Errorf("stopped once: %q, exit %+v", text, exit)
	}
	// On a busy machine the program runs before its reaper reports the start.
	p, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("trap '' TERM; while kill -STOP $PPID; do :; done"), Env: []string{"TAG=" + tag(t)}})
	if err == nil {
		if exit := p.Wait(); exit != (sandbox.Exit{Code: -1, Signal: syscall.SIGKILL}) {
			t.Errorf("stopped again and again: exit %+v", exit)
		}
		p.Close()
	} else if err.Error() != "start /bin/sh: "+heldReaper {
		t.Error(err)
	}
	signalled(t, tag(t))
}

const heldReaper = "the reaper was stopped again and again before it could report the start: killed with its program"

// The start of a program fails where its reaper is stopped before it can report it,
// and the error says so: it was "the reaper ended without a word".
func TestReaperIsHeld(t *testing.T) {
	over := make(chan struct{})
	var stopper sync.WaitGroup
	stopper.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			lists, _ := filepath.Glob("/proc/self/task/*/children")
			for _, list := range lists {
				pids, _ := os.ReadFile(list)
				for _, pid := range strings.Fields(string(pids)) {
					n, err := strconv.Atoi(pid)
					args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
					if err != nil || !bytes.HasSuffix(args, []byte("\x00__run\x00")) { // before exec we would be stopped with it
						continue
					}
					for syscall.Kill(n, syscall.SIGSTOP) == nil { // until it is reaped
					}
				}
			}
		}
	})
	slow := sandbox.Rules{Confinement: sandbox.WherePossible} // its reaper is at work for long before it can report
	for i := range 50_000 {
		slow.ReadWrite = append(slow.ReadWrite, fmt.Sprintf("/none/%d", i))
	}
	var err error
	for try := 0; err == nil && try < 20; try++ { // one that is quicker than nine stops starts all the same
		var p *sandbox.Process
		if p, err = sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("exec sleep 1000"), Rules: slow, Env: []string{"TAG=" + tag(t)}}); err == nil {
			p.Close()
		}
	}
	close(over)
	stopper.Wait()
	if err == nil || err.Error() != "start /bin/sh: "+heldReaper {
		t.Errorf("error %v", err)
	}
	signalled(t, tag(t))
}

// A program that stops for its reaper, which it has made its tracer, has not
// ended: it goes on.
func TestTraced(t *testing.T) {
	for _, rules := range []sandbox.Rules{{}, confinements["trusted"]} {
		text, exit := output(t, rules, "", role("traced", sh("echo on; exit 3")...)...)
		if text != "on\n" || exit.Code != 3 {
			t.Errorf("%q, exit %+v", text, exit)
		}
	}
}
