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
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/proctree"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/stdio"
)

// spareMode is the variable of the environment that says how a spare behaves.
const spareMode = "NEXUS_TEST_SPARE="

// playSpare is the program of these tests: a spare if it is started so, else an agent.
// What it is shows in its answers.
func playSpare() {
	mode := os.Getenv("NEXUS_TEST_SPARE")
	born := strings.ToValidUTF8(strings.Join(os.Args[1:], " "), "?")
	if born != "spare" {
		ready(protocol.Version)
		serve(born + ": ")
		return
	}
	switch mode {
	case "refuses":
		fmt.Fprintln(os.Stderr, "no such verb")
		os.Exit(2)
	case "says something else":
		ready(protocol.Version)
		forever()
	}
	fmt.Fprintln(os.Stderr, "a word of the spare")
	fmt.Println(`{"type":"spare"}`)
	line, err := frame.NewReader(os.Stdin).Next()
	if err != nil {
		return
	}
	switch mode {
	case "is told to end":
		os.Exit(0)
	case "is killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	case "leaves":
		os.Exit(protocol.ExitSessionInUse)
	}
	b, err := protocol.DecodeBecome(line)
	if err != nil {
		panic(err)
	}
	ready(protocol.Version)
	text, err := b.Line()
	if err != nil {
		panic(err)
	}
	serve(string(text) + ": ")
}

// house is a Launcher with spares.
type house struct {
	*testing.T
	*stdio.Launcher
	mu    sync.Mutex // guards what follows
	plan  stdio.SparePlan
	adapt func(*stdio.Command) // changes what agents are started with; nil changes nothing
	end   func()               // of Run; it may be called again
	logs  *observer.ObservedLogs
}

func newHouse(t *testing.T, count int, mode string) *house {
	h := &house{T: t, plan: stdio.SparePlan{Count: count, Program: os.Args[0], Env: []string{spareMode + mode, "GORACE=atexit_sleep_ms=0"}}}
	core, logs := observer.New(zap.InfoLevel)
	h.logs = logs
	h.Launcher = &stdio.Launcher{CommandLine: h, Log: zap.New(core), Spares: stdio.NewSpares(h, zap.New(core), nil)}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { h.Spares.Run(ctx) })
	h.end = func() { cancel(); run.Wait() }
	t.Cleanup(h.end)
	return h
}

// SparePlan implements [stdio.SparePlanner].
func (h *house) SparePlan() stdio.SparePlan {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plan
}

// await waits until so many spares wait.
func (h *house) await(n int) {
	h.Helper()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); ; <-pause.C {
		if got, _ := h.Spares.Stats(); got == n {
			return
		} else if time.Since(began) > patience {
			h.Fatalf("%d spares wait, want %d", got, n)
		}
	}
}

// Command implements [stdio.CommandLine]: that of an agent that a spare can become, unless
// adapt has it otherwise.
func (h *house) Command(s supervisor.Spec, again bool) (stdio.Command, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := stdio.Command{Program: h.plan.Program, Env: h.plan.Env, Become: protocol.Become{Args: []string{"--session=" + s.ID}, Dir: s.Cwd}}
	if again {
		c.Args = []string{"--continue=" + s.ID}
	}
	if h.adapt != nil {
		h.adapt(&c)
	}
	return c, nil
}

// born is what an agent says that it was made of.
func (h *house) born(t *testing.T, s supervisor.Spec, again bool) (of string, pid int) {
	t.Helper()
	conn, err := h.Launch(t.Context(), s, again)
	if err != nil {
		t.Fatalf("launch %s: %v", s.ID, err)
	}
	defer func() {
		conn.Stop(killed())
		_, _ = io.Copy(io.Discard, reader{conn})
	}()
	if err := conn.Send(protocol.Prompt{ID: "1", Message: "!"}); err != nil {
		t.Fatal(err)
	}
	f, err := conn.Recv()
	if err != nil {
		t.Fatal(err)
	}
	event, err := f.Decode()
	if err != nil {
		t.Fatal(err)
	}
	said := event.(protocol.MessageUpdate).Event.(protocol.TextDelta).Delta
	return strings.TrimSuffix(said, ": !"), conn.PID()
}

// reader reads an incarnation to its end.
type reader struct{ supervisor.Conn }

func (r reader) Read([]byte) (int, error) { _, err := r.Recv(); return 0, err }

// An agent is made of a spare if it needs nothing that only a start can give it.
func TestSpareBecomesAnAgent(t *testing.T) {
	h := newHouse(t, 1, "")
	dir := t.TempDir()
	tests := []struct {
		name  string
		spec  supervisor.Spec
		again bool
		adapt func(*stdio.Command)
		want  string
	}{
		{"a new one", supervisor.Spec{}, false, nil, `{"type":"become","args":["--session=a"]}`},
		{"one that comes back", supervisor.Spec{}, true, nil, `{"type":"become","args":["--continue=a"]}`},
		{"with a directory", supervisor.Spec{Cwd: dir}, false, nil, fmt.Sprintf(`{"type":"become","args":["--session=a"],"dir":%q}`, dir)},
		{"with a system prompt", supervisor.Spec{}, false, func(c *stdio.Command) { c.System = new("Be brief.") }, `{"type":"become","args":["--session=a"],"system":"Be brief."}`},
		{"with variables of its own", supervisor.Spec{}, false, func(c *stdio.Command) { c.Own = []string{"A=1"} }, "--session=a"},
		{"with less of an environment", supervisor.Spec{}, false, func(c *stdio.Command) { c.Env = c.Env[:1] }, "--session=a"},
		{"with limits", supervisor.Spec{Limits: supervisor.Limits{OpenFiles: 100}}, false, nil, "--session=a"},
		{"with a limit of turns", supervisor.Spec{Limits: supervisor.Limits{TurnSeconds: 100}}, false, nil, `{"type":"become","args":["--session=a"]}`},
		{"below one with limits", supervisor.Spec{Shares: []supervisor.Share{{Agent: "boss", Limits: supervisor.Limits{CPUSeconds: 100}}}}, false, nil, "--session=a"},
		{"of another program", supervisor.Spec{}, false, func(c *stdio.Command) { c.Program = "/proc/self/exe" }, "--session=a"},
		{"with what no line can hold", supervisor.Spec{}, false, func(c *stdio.Command) { c.Args = append(c.Args, "\xff") }, "--session=a ?"},
		{"with much to say", supervisor.Spec{}, false, func(c *stdio.Command) { c.Args = append(c.Args, strings.Repeat("x", 64<<10)) }, "--session=a " + strings.Repeat("x", 64<<10)},
	}
	used := uint64(0)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.await(1)
			tt.spec.ID = "a"
			h.mu.Lock()
			h.adapt = tt.adapt
			h.mu.Unlock()
			of, _ := h.born(t, tt.spec, tt.again)
			if of != tt.want {
				t.Errorf("it was made of %.100q, want %.100q", of, tt.want)
			}
			if strings.HasPrefix(tt.want, "{") {
				used++
			}
			if _, n := h.Spares.Stats(); n != used {
				t.Errorf("%d spares were used, want %d", n, used)
			}
		})
	}
	h.mu.Lock()
	h.adapt = nil
	h.mu.Unlock()
	for _, name := range []string{"gone", "file"} {
		t.Run("in a directory that is "+name, func(t *testing.T) {
			h.await(1)
			s := supervisor.Spec{ID: "a", Cwd: filepath.Join(dir, name)}
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := h.Launch(t.Context(), s, false)
			if e, ok := errors.AsType[*supervisor.DirError](err); !ok || e.Dir != s.Cwd {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// However many agents are wanted at once, each has a process of its own.
func TestSparesAreUsedOnce(t *testing.T) {
	h := newHouse(t, 2, "")
	h.await(2)
	conns := make([]supervisor.Conn, 8)
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() {
			var err error
			if conns[i], err = h.Launch(t.Context(), supervisor.Spec{ID: fmt.Sprint("a", i)}, false); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	pids := map[int]bool{}
	for _, conn := range conns {
		if conn == nil {
			continue
		}
		pids[conn.PID()] = true
		conn.Stop(killed())
		_, _ = io.Copy(io.Discard, reader{conn})
	}
	if _, used := h.Spares.Stats(); len(pids) != len(conns) || used < 2 {
		t.Errorf("%d processes for %d agents, %d spares used", len(pids), len(conns), used)
	}
	h.await(2)
}

// What a spare said is not said by the agent; what that says goes to its own log.
func TestSpareSpeaks(t *testing.T) {
	h := newHouse(t, 1, "")
	h.await(1)
	await := func(who string) {
		t.Helper()
		pause := time.NewTicker(time.Millisecond)
		defer pause.Stop()
		for began := time.Now(); h.logs.FilterMessage("child stderr").FilterField(zap.String("line", who)).Len() == 0; <-pause.C {
			if time.Since(began) > patience {
				t.Fatalf("nobody said %q: %v", who, h.logs.All())
			}
		}
	}
	await("a word of the spare")
	conn, err := h.Launch(t.Context(), supervisor.Spec{ID: "a"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if exit := conn.Stop(t.Context()); exit.Stderr != "told to go" {
		t.Errorf("its last words are %q", exit.Stderr)
	}
	_, _ = io.Copy(io.Discard, reader{conn})
	if said := h.logs.FilterMessage("child stderr").FilterField(zap.String("agent", "a")); said.Len() != 1 || said.All()[0].ContextMap()["line"] != "told to go" {
		t.Errorf("the agent's log has %v", said.All())
	}
}

// A spare that somebody kills is replaced, and no agent notices: not even one that the
// spare was to become. What an agent's own start complains of is no reason for another.
func TestSpareIsKilled(t *testing.T) {
	t.Run("while it waits", func(t *testing.T) {
		h := newHouse(t, 1, "")
		h.await(1)
		of, first := h.born(t, supervisor.Spec{ID: "a"}, false)
		h.await(1)
		if !strings.HasPrefix(of, "{") {
			t.Fatalf("it was made of %q", of)
		}
		second := h.waits()
		if second == first {
			t.Fatal("a spare was used and waits")
		}
		if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if of, pid := h.born(t, supervisor.Spec{ID: "b"}, false); pid == second || of == "" {
			t.Errorf("process %d is of %q", pid, of)
		}
		h.await(1)
	})
	for _, mode := range []string{"is killed", "is told to end"} {
		t.Run("before it is ready it "+mode, func(t *testing.T) {
			h := newHouse(t, 1, mode)
			h.await(1)
			if of, _ := h.born(t, supervisor.Spec{ID: "a"}, false); of != "--session=a" {
				t.Errorf("it was made of %q", of)
			}
		})
	}
	t.Run("stopped", func(t *testing.T) {
		h := newHouse(t, 1, "")
		h.await(1)
		stopped := h.waits()
		if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		pause := time.NewTicker(time.Millisecond)
		defer pause.Stop()
		// It may have been replaced by now, and the agent be made of the next one.
		for stat, err := proctree.ReadStat(stopped); err == nil && stat.State != 'T'; stat, err = proctree.ReadStat(stopped) {
			<-pause.C
		}
		if of, pid := h.born(t, supervisor.Spec{ID: "a"}, false); of == "" || pid == stopped {
			t.Errorf("process %d is of %q", pid, of)
		}
		h.awaitAnother(stopped)
	})
	t.Run("no, it has a reason", func(t *testing.T) {
		h := newHouse(t, 1, "leaves")
		h.await(1)
		_, err := h.Launch(t.Context(), supervisor.Spec{ID: "a"}, false)
		if e, ok := errors.AsType[*supervisor.SessionError](err); !ok || !e.InUse {
			t.Errorf("error = %v", err)
		}
	})
}

// awaitAnother waits until another spare waits than that process, and is of use.
func (h *house) awaitAnother(old int) {
	h.Helper()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); ; <-pause.C {
		if n, _ := h.Spares.Stats(); n == 1 && h.waits() != old {
			return
		} else if time.Since(began) > patience {
			h.Fatalf("process %d is a spare still", old)
		}
	}
}

// waits is the id of the spare that waits, which is a child of ours with that argument.
func (h *house) waits() int {
	h.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.Fatal(err)
	}
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[0] != "Z" && fields[1] == fmt.Sprint(os.Getpid()) && strings.Contains(string(line), "\x00spare\x00") {
			var pid int
			fmt.Sscan(filepath.Base(dir), &pid)
			return pid
		}
	}
	h.Fatal("no spare waits")
	return 0
}

// When the program, the environment or the number changes, no agent is made of an old
// spare, and none is kept.
func TestSparesFollowThePlan(t *testing.T) {
	h := newHouse(t, 1, "")
	program := filepath.Join(t.TempDir(), "program")
	install := func() {
		t.Helper()
		if err := os.Remove(program + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		text, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(program+".new", text, 0o700) //nolint:gosec // it is to be executed
		}
		if err := errors.Join(err, os.Rename(program+".new", program)); err != nil {
			t.Fatal(err)
		}
	}
	change := func(f func(*stdio.SparePlan)) {
		h.mu.Lock()
		f(&h.plan)
		h.mu.Unlock()
		h.Spares.Changed()
	}
	install()
	change(func(p *stdio.SparePlan) { p.Program = program })
	for range 2 { // the first may be of the program before
		h.await(1)
		if of, _ := h.born(t, supervisor.Spec{ID: "a"}, false); strings.HasPrefix(of, "{") {
			break
		}
	}
	h.await(1)
	old := h.waits()
	install()
	if of, pid := h.born(t, supervisor.Spec{ID: "b"}, false); pid == old || of != "--session=b" {
		t.Errorf("after an upgrade process %d of %q is an agent", pid, of)
	}
	h.awaitAnother(old)
	change(func(p *stdio.SparePlan) { p.Count = 0 })
	h.await(0)
	if of, _ := h.born(t, supervisor.Spec{ID: "c"}, false); of != "--session=c" {
		t.Errorf("without spares it was made of %q", of)
	}
	change(func(p *stdio.SparePlan) { p.Count = 2 })
	h.await(2)
	h.end()
	h.await(0)
	if of, _ := h.born(t, supervisor.Spec{ID: "d"}, false); of != "--session=d" {
		t.Errorf("after their end it was made of %q", of)
	}
}

// Without spares, as where the program has none, agents are started as ever, and the
// pauses grow.
func TestNoSpares(t *testing.T) {
	for _, mode := range []string{"refuses", "says something else"} {
		t.Run(mode, func(t *testing.T) {
			h := newHouse(t, 1, mode)
			if of, _ := h.born(t, supervisor.Spec{ID: "a"}, false); of != "--session=a" {
				t.Errorf("it was made of %q", of)
			}
		})
	}
	var got []time.Duration
	for failures := range 10 {
		got = append(got, stdio.SparePause(failures))
	}
	want := []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}
