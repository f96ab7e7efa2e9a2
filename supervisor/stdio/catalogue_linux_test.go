package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/stdio"
)

// fakechild is the program that misbehaves on request.
var fakechild string

// rungs are short, for children that do not go when asked.
var rungs = proc.Graces{Shutdown: 50 * time.Millisecond, Close: 50 * time.Millisecond, Term: 50 * time.Millisecond}

// row is one fault and what becomes of it.
type row struct {
	fault  string
	limits supervisor.Limits
	// want is what we see: the error of the start; or the frames, runs of one type
	// as N×TYPE, up to the response or to what Recv said in the end; and the exit.
	want []string
	// until is the part of want after which we stop it; "" if it ends by itself or
	// answers.
	until string
	// logged is how many lines of stdout are logged as no frames.
	logged int
	stderr string // how its stderr begins
}

const (
	delta      = "message_update"
	settled    = "2×message_update" // the fault has come about
	finished   = "exit status 0"
	terminated = "signal: terminated"
	shot       = "signal: killed"
)

// graces let a child that goes at a rung have the time for it.
func (r row) graces() proc.Graces {
	g := rungs
	if slices.Contains(r.want, finished) {
		g.Shutdown = patience
	}
	if slices.Contains(r.want, terminated) {
		g.Term = patience
	}
	return g
}

var answer = []string{delta, "agent_end", "response", finished}

// catalogue has every fault that one incarnation shows by itself, and what a
// supervisor sees of it.
var catalogue = []row{
	{fault: "none", want: answer},

	{fault: "crash-at-start", want: []string{"child ended before it was ready (exit status 1): fakechild: there is nothing to live for"}},
	{fault: "never-ready", want: []string{"not ready in time (signal: killed)"}},
	{fault: "never-ready-and-deaf", want: []string{"not ready in time (signal: killed)"}},
	{fault: "stopped-at-start", want: []string{"not ready in time (signal: killed)"}},
	{fault: "event-before-ready", want: []string{`child's first frame is "message_update", want ready (signal: killed)`}},
	{fault: "garbage-before-ready", want: answer, logged: 10},
	{fault: "wrong-version", want: []string{"child speaks protocol version 2, want 1 (signal: killed)"}},
	{fault: "missing-version", want: []string{`child's first frame: ready: member "protocol_version" is missing (signal: killed)`}},
	{fault: "two-readies", want: []string{"child said ready again", shot}},

	{fault: "exit-0-in-turn", want: []string{delta, "EOF", finished}, stderr: "fakechild: gone in the middle of a turn"},
	{fault: "exit-3-in-turn", want: []string{delta, "EOF", "exit status 3"}, stderr: "fakechild: gone in the middle of a turn"},
	{fault: "killed-in-frame", want: []string{delta, "EOF", shot}, logged: 1},
	{fault: "garbage-stdout", want: answer, logged: 20},
	{fault: "flood-stdout", want: []string{delta, "more than 100 lines on the child's stdout were no frames", shot}, logged: 100},
	{fault: "huge-line", want: answer, logged: 1},
	{fault: "endless-line", limits: supervisor.Limits{OutputBytesPerSecond: 1 << 20}, want: []string{delta, "EOF", "killed: output limit 1 MiB/s"}, logged: 1},
	{fault: "flood-events", want: []string{"20001×message_update", "agent_end", "response", finished}},
	{fault: "flood-stderr", want: answer, stderr: "eeeee"},
	{fault: "slow-frames", want: []string{delta, "weather", "agent_end", "response", finished}},
	{fault: "two-responses", want: []string{delta, "response", finished}},
	{fault: "stdin-never-read", want: []string{"stdin not read in 50ms", shot}},
	{fault: "flood-unread", want: []string{"stdin not read in 50ms", shot}},
	{fault: "asks-unread", want: []string{"stdin not read in 50ms", shot}},
	{fault: "long-call-id", until: "host_call", want: []string{delta, "host_call", terminated}},
	{fault: "stdout-closed", want: []string{delta, "child closed its stdout", shot}},
	{fault: "silent-turn", until: "ready", want: []string{finished}},
	{fault: "ping-unanswered", until: "response", want: []string{delta, "agent_end", "response", finished}},
	{fault: "stop-self", until: settled, want: []string{settled, shot}},
	{fault: "ignore-term", until: settled, want: []string{settled, shot}},
	{fault: "memory-hog", limits: supervisor.Limits{MemoryBytes: 128 << 20}, want: []string{delta, "EOF", "killed: memory limit 128 MiB"}},
	{fault: "memory-hog-at-once", limits: supervisor.Limits{MemoryBytes: 128 << 20}, want: []string{delta, "EOF", "killed: memory limit 128 MiB"}},
	{fault: "cpu-hog", limits: supervisor.Limits{CPUSeconds: 1}, want: []string{delta, "EOF", "killed: CPU limit 1 s"}},
	{fault: "output-hog", limits: supervisor.Limits{OutputBytesPerSecond: 1000}, want: []string{"EOF", "killed: output limit 1000 bytes/s"}},
	{fault: "file-hog", limits: supervisor.Limits{OpenFiles: 64}, want: []string{"2×message_update", "agent_end", "response", finished}},

	{fault: "hold-stdout-by-grandchild", want: []string{settled, "EOF", finished}},
	{fault: "grandchild", until: settled, want: []string{settled, terminated}},
	{fault: "setsid-grandchild", until: settled, want: []string{settled, terminated}},
	{fault: "double-fork", until: settled, want: []string{settled, terminated}},
	{fault: "stopped-grandchild", until: settled, want: []string{settled, terminated}},
	{fault: "fork-storm", until: settled, want: []string{settled, terminated}},
	{fault: "memory-hog-grandchild", limits: supervisor.Limits{MemoryBytes: 128 << 20}, want: []string{settled, "EOF", "killed: memory limit 128 MiB"}},
	{fault: "process-hog", limits: supervisor.Limits{Processes: 40}, want: []string{settled, "EOF", "killed: process limit 40"}},
}

// Each fault is seen as what it is, ends nothing but its child, and leaves no
// process: the pipe that all of its processes hold is closed when the exit is
// known.
func TestCatalogue(t *testing.T) {
	guard, err := proc.NewGuard(proc.GuardOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := guard.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, r := range catalogue {
		t.Run(r.fault, func(t *testing.T) {
			pipe, held := pipeByName(t)
			core, logs := observer.New(zap.WarnLevel)
			l := &stdio.Launcher{
				CommandLine: player{},
				Log:         zap.New(core), Graces: r.graces(), Guard: guard, WriteTimeout: 50 * time.Millisecond,
			}
			got, stderr := r.play(t, l, pipe)
			if diff := cmp.Diff(r.want, got); diff != "" {
				t.Errorf("what is seen (-want +got):\n%s", diff)
			}
			if held() {
				t.Error("a process is left")
			}
			if n := logs.FilterMessage("no frame on the child's stdout").Len(); n != r.logged && r.fault != "output-hog" { // there it may be cut in a frame
				t.Errorf("%d lines logged as no frames, want %d", n, r.logged)
			}
			if !strings.HasPrefix(stderr, r.stderr) {
				t.Errorf("stderr %q, want %q…", stderr, r.stderr)
			}
		})
	}
}

// play runs a child with the fault through one turn.
func (r row) play(t *testing.T, l *stdio.Launcher, pipe string) (seen []string, stderr string) {
	t.Helper()
	patience := 10 * time.Second
	if slices.Contains(r.want, "not ready in time (signal: killed)") {
		patience = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("not ready in time"))
	defer cancel()
	s := fake(r.fault, pipe)
	s.Limits = r.limits
	conn, err := l.Launch(ctx, s, false)
	if err != nil {
		return []string{err.Error()}, ""
	}
	defer func() {
		exit := conn.Stop(killed())
		for {
			if _, err := conn.Recv(); err != nil {
				break
			}
		}
		seen, stderr = append(seen, exit.String()), exit.Stderr
	}()
	if slices.Contains(r.want, "stdin not read in 50ms") {
		return []string{cut(fill(conn))}, ""
	}
	if err := conn.Send(protocol.Prompt{ID: "1", Message: "hello"}); err != nil {
		return []string{err.Error()}, ""
	}
	if r.until == "ready" {
		conn.Stop(t.Context())
		return nil, ""
	}
	runs := 0
	for {
		f, err := conn.Recv()
		if err != nil {
			if r.fault == "output-hog" { // how much of it we see depends on when
				seen = nil
			}
			return append(seen, cut(err)), ""
		}
		if runs++; len(seen) == 0 || !strings.HasSuffix(seen[len(seen)-1], f.Type) {
			runs, seen = 1, append(seen, f.Type)
		} else {
			seen[len(seen)-1] = fmt.Sprintf("%d×%s", runs, f.Type)
		}
		if seen[len(seen)-1] == r.until || f.Type == "response" {
			conn.Stop(t.Context())
			return seen, ""
		}
	}
}

// fill sends prompts until one is not read.
func fill(conn supervisor.Conn) error {
	for {
		if err := conn.Send(protocol.Prompt{ID: "1", Message: strings.Repeat("x", 1<<16)}); err != nil {
			return err
		}
	}
}

// cut leaves out what the system says.
func cut(err error) string {
	if err == io.EOF {
		return "EOF"
	}
	text, _, _ := strings.Cut(err.Error(), ": write ")
	text, _, _ = strings.Cut(text, ": i/o")
	return text
}

func fake(fault, pipe string) supervisor.Spec {
	return supervisor.Spec{ID: "fake", Model: "--fault=" + fault, Env: map[string]string{"FAKECHILD_HOLD": pipe}}
}

// pipeByName is a pipe, and whether anybody holds its other end.
func pipeByName(t *testing.T) (path string, held func() bool) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hold")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return path, func() bool {
		n, _ := unix.Read(fd, make([]byte, 1)) // 0 is the end; else it would wait
		return n != 0
	}
}

// The catalogue is about all faults that there are.
func TestCatalogueIsWhole(t *testing.T) {
	out, err := run(t, fakechild, "--list")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		if !slices.ContainsFunc(catalogue, func(r row) bool { return r.fault == name }) {
			t.Errorf("%s is not in the catalogue", name)
		}
	}
}

func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	process, err := os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{Files: []*os.File{nil, w, os.Stderr}})
	w.Close()
	if err != nil {
		return "", err
	}
	out, err := io.ReadAll(r)
	if _, failed := process.Wait(); failed != nil {
		return "", failed
	}
	return string(out), err
}
