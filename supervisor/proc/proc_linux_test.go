package proc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
	"nexus.internal/supervisor/proc"
)

// The test binary plays the processes that it starts.
func TestMain(m *testing.M) {
	proctree.JoinLineage()
	if role := os.Getenv("PROC_ROLE"); role != "" {
		roles[role]()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("nexus.internal/supervisor/proc.spawnThread"), goleak.IgnoreAnyFunction("nexus.internal/supervisor/proc.(*exits).run"))
}

var roles = map[string]func(){
	"nest": nest, "brood": brood, "fledge": fledge, "storm": storm, "server": server, "faults": faults,
	"poor": poor, "spinner": spinner, "blower": blower, "opener": opener, "lessee": lessee,
	"burners": burners, "burner": burner, "holder": holder,
	// echo copies its stdin until it ends.
	"echo": func() { io.Copy(os.Stdout, os.Stdin) },
	// polite says goodbye when it is told to go.
	"polite": func() {
		fmt.Println("here")
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Print("bye ", line)
	},
	"status": func() {
		fmt.Fprintln(os.Stderr, "first line\nmy key is nxk_0123456789abcdef, Authorization: Bearer abc.def-ghi")
		fmt.Fprint(os.Stderr, "last words")
		os.Exit(3)
	},
	// mourner complains, and once it is written to, again.
	"mourner": func() {
		fmt.Fprintln(os.Stderr, "stale: cannot allocate memory")
		bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Fprint(os.Stderr, "fresh")
		os.Exit(3)
	},
	// stoic does so once.
	"stoic": func() {
		fmt.Fprintln(os.Stderr, "stale: cannot allocate memory")
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(3)
	},
	// untermable ignores whatever can be ignored.
	"untermable": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("here")
		forever()
	},
	// silent is one of them that says nothing.
	"silent": func() {
		signal.Ignore(syscall.SIGTERM)
		forever()
	},
	"deaf": func() { fmt.Println("here"); forever() },
	// parent starts a process in its own group, which holds its stdout.
	"parent": func() { offspring(false); forever() },
	// leaver does so too, and exits.
	"leaver": func() { offspring(false) },
	// escaped is a leaver whose child left the group.
	"escaped": func() { offspring(true) },
	// chatty writes more than a pipe holds, and exits.
	"chatty": func() {
		for i := range 10_000 {
			fmt.Println("line", i)
		}
		os.Exit(5)
	},
	// descriptors says how many it has.
	"descriptors": func() {
		entries, err := os.ReadDir("/proc/self/fd")
		fmt.Println(len(entries), err)
	},
	// flood writes to stderr without end or newline, then lines.
	"flood": func() {
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		for i := range 1000 {
			fmt.Fprintln(os.Stderr, "line", i)
		}
	},
	// supervisor starts three processes, says their ids and waits to be killed.
	"supervisor": func() {
		for range 3 {
			p := start(proc.Spec{Env: role("deaf")})
			bufio.NewReader(p.Stdout()).ReadString('\n')
			fmt.Println(p.PID())
		}
		forever()
	},
}

// forever outlives every test, but no test binary for long: one that was killed
// cleans up nothing.
func forever() {
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, syscall.SIGUSR1)
	select {
	case <-wait:
	case <-time.After(5 * time.Minute):
	}
}

func offspring(escape bool) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = role("silent")
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: escape}
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	_ = r
	fmt.Println(cmd.Process.Pid)
}

func role(name string) []string { return []string{"PROC_ROLE=" + name, "GORACE=atexit_sleep_ms=0"} }

func start(s proc.Spec) *proc.Process {
	s.Argv = []string{os.Args[0]}
	p, err := proc.Start(s)
	if err != nil {
		panic(err)
	}
	return p
}

// begin starts a role and reads the first line it writes.
func begin(t *testing.T, name string, s proc.Spec) (*proc.Process, *bufio.Reader, string) {
	t.Helper()
	s.Env = role(name)
	p := start(s)
	t.Cleanup(func() { p.Stop(killed(), nil); p.Discard() })
	out := bufio.NewReader(p.Stdout())
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: first line: %v", name, err)
	}
	return p, out, strings.TrimSpace(line)
}

func killed() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

var quick = proc.Graces{Shutdown: 50 * time.Millisecond, Close: 50 * time.Millisecond, Term: 50 * time.Millisecond}

// watch opens a process so that its end can be waited for. One that is still
// there at the end of the test is killed then.
func watch(t *testing.T, pid string) (gone func()) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(id, 0)
	if errors.Is(err, unix.ESRCH) {
		return func() {}
	}
	if err != nil {
		t.Fatalf("watch %d: %v", id, err)
	}
	t.Cleanup(func() {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	})
	return func() {
		t.Helper()
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, 10_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n != 1 {
				t.Fatalf("process %d is still there (%v)", id, err)
			}
			return
		}
	}
}

func TestEcho(t *testing.T) {
	p := start(proc.Spec{Env: role("echo")})
	if _, err := p.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(p.Stdout())
	if line, err := out.ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	if exit := p.Stop(t.Context(), nil); exit != (proc.Exit{}) {
		t.Errorf("exit = %+v, want status 0 after its stdin ended", exit)
	}
	if _, err := out.ReadByte(); err != io.EOF {
		t.Errorf("read after the end: %v, want io.EOF", err)
	}
	if _, err := p.Write([]byte("x")); err == nil {
		t.Error("wrote to a process that is gone")
	}
	if exit := p.Stop(t.Context(), nil); exit != (proc.Exit{}) {
		t.Errorf("stopped again: %+v", exit)
	}
}

func TestExit(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	p := start(proc.Spec{Env: role("status"), Log: zap.New(core)})
	defer p.Discard()
	want := proc.Exit{Code: 3, Stderr: "first line\nmy key is [redacted], Authorization: [redacted]\nlast words"}
	if exit := p.Exit(); exit != want {
		t.Errorf("exit = %+v\nwant   %+v", exit, want)
	}
	if n := logs.Len(); n != 3 {
		t.Errorf("%d lines logged, want 3", n)
	}
	for _, entry := range logs.All() {
		if line := fmt.Sprint(entry.ContextMap()); strings.Contains(line, "nxk_") || strings.Contains(line, "abc.def") {
			t.Errorf("a key was logged: %s", line)
		}
	}
}

// What a process wrote before it is to be forgotten is not how it ended, also where it
// told of a lack of memory, and ended without a word since.
func TestStderrThatIsForgotten(t *testing.T) {
	for _, c := range []struct{ role, want string }{{"mourner", "fresh"}, {"stoic", ""}} {
		read := make(chan struct{}, 10)
		core, _ := observer.New(zap.InfoLevel)
		log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { read <- struct{}{}; return nil }))
		p := start(proc.Spec{Env: role(c.role), Log: log, Limits: proc.Limits{MemoryBytes: 1 << 30}})
		defer p.Discard()
		<-read
		p.ForgetStderr()
		if _, err := p.Write([]byte("die\n")); err != nil {
			t.Error(err)
		}
		if exit := p.Exit(); exit != (proc.Exit{Code: 3, Stderr: c.want}) {
			t.Errorf("%s: exit = %+v", c.role, exit)
		}
	}
}

func TestStderrIsBounded(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	p := start(proc.Spec{Env: role("flood"), Log: zap.New(core)})
	defer p.Discard()
	exit := p.Exit()
	if len(exit.Stderr) > 4<<10 || !strings.HasSuffix(exit.Stderr, "line 999") {
		t.Errorf("tail of %d bytes ends with %q", len(exit.Stderr), exit.Stderr[max(0, len(exit.Stderr)-20):])
	}
	if n := logs.Len(); n < 100 || n > 500 {
		t.Errorf("%d lines logged of 1001", n)
	}
	for _, entry := range logs.All() {
		if line := entry.ContextMap()["line"].(string); len(line) > 8<<10 {
			t.Errorf("a line of %d bytes was logged", len(line))
		}
	}
}

// Each rung, by what the process does with it.
func TestLadder(t *testing.T) {
	for _, c := range []struct {
		role   string
		graces proc.Graces
		ctx    context.Context
		want   proc.Exit
	}{
		{"polite", proc.Graces{}, t.Context(), proc.Exit{}},
		{"deaf", proc.Graces{Shutdown: 1, Close: 1}, t.Context(), proc.Exit{Code: -1, Signal: "terminated"}},
		{"untermable", quick, t.Context(), proc.Exit{Code: -1, Signal: "killed"}},
		{"untermable", proc.Graces{Shutdown: time.Hour}, killed(), proc.Exit{Code: -1, Signal: "killed"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			p, out, _ := begin(t, c.role, proc.Spec{Graces: c.graces})
			exit := p.Stop(c.ctx, func() { p.Write([]byte("now\n")) })
			if exit != c.want {
				t.Errorf("exit = %+v, want %+v", exit, c.want)
			}
			rest, err := io.ReadAll(out)
			if err != nil || (c.role == "polite") != (string(rest) == "bye now\n") {
				t.Errorf("it said %q, %v", rest, err)
			}
		})
	}
}

// A later caller in a hurry hurries the first one.
func TestStopHurried(t *testing.T) {
	p, _, _ := begin(t, "untermable", proc.Spec{Graces: proc.Graces{Shutdown: time.Hour}})
	first := make(chan proc.Exit, 1)
	said := make(chan struct{})
	go func() { first <- p.Stop(context.Background(), func() { close(said) }) }()
	<-said
	p.Stop(killed(), nil)
	if exit := <-first; exit.Signal != "killed" {
		t.Errorf("exit = %+v", exit)
	}
}

// A stopped process takes no TERM until it is continued.
func TestStopOfStopped(t *testing.T) {
	p, _, _ := begin(t, "deaf", proc.Spec{Graces: proc.Graces{Shutdown: 1, Close: 1, Term: time.Minute}})
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if exit := p.Stop(t.Context(), nil); exit.Signal != "terminated" {
		t.Errorf("exit = %+v, want terminated", exit)
	}
}

func TestWriteTimeout(t *testing.T) {
	p, _, _ := begin(t, "deaf", proc.Spec{WriteTimeout: 50 * time.Millisecond})
	n, err := p.Write(make([]byte, 1<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || !strings.Contains(err.Error(), "stdin not read in 50ms") {
		t.Errorf("Write = %d, %v", n, err)
	}
}

// A polite word that nobody reads holds up the ladder for its grace only.
func TestStopSetsPoliteFree(t *testing.T) {
	p, _, _ := begin(t, "deaf", proc.Spec{Graces: quick, WriteTimeout: time.Hour})
	if exit := p.Stop(t.Context(), func() { p.Write(make([]byte, 1<<20)) }); exit.Signal == "" {
		t.Errorf("exit = %+v", exit)
	}
}

// All that a process wrote is read, even if it exited long before.
func TestOutputOutlivesProcess(t *testing.T) {
	p, out, _ := begin(t, "chatty", proc.Spec{})
	rest, err := io.ReadAll(out)
	if n := bytes.Count(rest, []byte{'\n'}); n != 9_999 || err != nil {
		t.Errorf("%d lines, %v, want 9999 more", n, err)
	}
	if exit := p.Exit(); exit.Code != 5 {
		t.Errorf("exit = %+v", exit)
	}
}

// What is in the group of a process goes with it, asked or not.
func TestGroupGoesToo(t *testing.T) {
	for _, name := range []string{"parent", "leaver"} {
		t.Run(name, func(t *testing.T) {
			s := proc.Spec{Env: role(name), Graces: proc.Graces{Shutdown: 1, Close: 1, Term: 1}}
			p, _, pid := begin(t, name, s)
			gone := watch(t, pid)
			if name == "leaver" {
				<-p.Done()
			}
			p.Stop(t.Context(), nil)
			gone()
		})
	}
}

// A process that left the group and holds the output does not hold us up.
func TestOutputHeldByOthers(t *testing.T) {
	p, out, pid := begin(t, "escaped", proc.Spec{})
	watch(t, pid) // nobody else ends it
	if rest, err := io.ReadAll(out); len(rest) > 0 || err != nil {
		t.Errorf("read %q, %v", rest, err)
	}
	if exit := p.Exit(); exit.Code != 0 {
		t.Errorf("exit = %+v", exit)
	}
}

// The kernel ties a child's life to the thread that started it. Here the
// thread of the caller ends at once; the child lives.
func TestChildOutlivesThread(t *testing.T) {
	started := make(chan *proc.Process)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with us
		started <- start(proc.Spec{Env: role("echo")})
	}()
	p := <-started
	defer p.Stop(killed(), nil)
	defer p.Discard()
	out := bufio.NewReader(p.Stdout())
	for range 100 {
		runtime.Gosched()
		if _, err := p.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

// When a supervisor is killed outright, its children go with it.
func TestSupervisorKilled(t *testing.T) {
	p, out, pid := begin(t, "supervisor", proc.Spec{})
	gone := []func(){watch(t, pid)}
	for range 2 {
		pid, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, watch(t, strings.TrimSpace(pid)))
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, f := range gone {
		f()
	}
}

// A hundred processes come and go, and leave no descriptor.
func TestNoDescriptorLeaks(t *testing.T) {
	cycle := func() {
		p := start(proc.Spec{Env: role("echo")})
		p.Stop(t.Context(), nil)
		io.Copy(io.Discard, p.Stdout())
	}
	cycle() // what is opened once
	before := descriptors(t)
	for range 100 {
		cycle()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A child has its three pipes, what we inherited ourselves, and nothing of
// ours nor of its siblings.
func TestNoDescriptorsHandedDown(t *testing.T) {
	plain := exec.Command(os.Args[0])
	plain.Env = role("descriptors")
	want, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		sibling := start(proc.Spec{Env: role("echo")})
		defer sibling.Discard()
		defer sibling.Stop(killed(), nil)
	}
	p := start(proc.Spec{Env: role("descriptors")})
	got, err := io.ReadAll(p.Stdout())
	if string(got) != string(want) || err != nil {
		t.Errorf("descriptors of a child: %s, %v, want %s", got, err, want)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
