package proc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
	"nexus.internal/supervisor/proc"
)

// nest is a process that starts others which do not want to go, and waits. All
// of them hold the pipe NEST open.
func nest() {
	signal.Ignore(syscall.SIGTERM)
	hold, err := os.OpenFile(os.Getenv("NEST"), os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	for _, how := range strings.Fields(os.Getenv("HOW")) {
		kind, session, _ := strings.Cut(how, "/")
		another(kind, session == "setsid", hold)
	}
	fmt.Println("here")
	forever()
}

// another starts a process that holds the pipe, with nothing in its
// environment to know it by, and waits until it is settled.
func another(kind string, setsid bool, hold *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = role(kind)
	cmd.Stdout = os.Stdout // which is held open too
	cmd.ExtraFiles = []*os.File{hold, w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	r.Read(make([]byte, 1))
	r.Close()
}

// brood is one of them: it ignores what it can, and may stop.
func brood() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	os.NewFile(4, "settled").Close()
	forever()
}

// fledge starts one in a session of its own and is gone.
func fledge() {
	another("brood", true, os.NewFile(3, "hold"))
	os.NewFile(4, "settled").Close()
}

// storm is a process that lives only to start the next one, a thousand times.
func storm() {
	os.NewFile(4, "settled").Close()
	panic(syscall.Exec("/bin/sh", []string{"sh", "-c", "n=1000; f() { n=$((n-1)); [ $n -gt 0 ] && f & }; f"}, nil))
}

// everyKind are ways to escape from being ended with a parent or a group.
const (
	escapes   = "brood brood/setsid fledge fledge/setsid"
	everyKind = escapes + " storm storm/setsid"
)

// server is a supervisor with a guard and three nests. It says the watchdog's id.
func server() {
	g, err := proc.NewGuard(proc.GuardOptions{Dir: os.Getenv("DIR")})
	if err != nil {
		panic(err)
	}
	for range 3 {
		p, err := proc.Start(proc.Spec{Argv: []string{"/proc/self/exe"}, Env: nestEnv(os.Getenv("NEST"), os.Getenv("HOW")), Guard: g})
		if err != nil {
			panic(err)
		}
		if _, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil {
			panic(err)
		}
	}
	fmt.Println(watchdogOf(os.Getpid()), g.Mechanisms())
	forever()
}

func nestEnv(pipe, how string) []string {
	return append(role("nest"), "NEST="+pipe, "HOW="+how)
}

// watchdogOf finds the watchdog among the children of a process; 0: there is none. It
// reads no list of children: the kernel leaves some out while others end.
func watchdogOf(pid int) int {
	all, _ := proctree.All()
	for _, id := range all {
		line := ""
		for line == "" { // it is being executed: the kernel has its arguments soon
			s, err := proctree.ReadStat(id)
			if err != nil || s.Parent != pid || s.Ended() {
				break
			}
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id))
			line = string(data)
		}
		if slices.Contains(strings.Split(line, "\x00"), "__watchdog") {
			return id
		}
	}
	return 0
}

// nestPipe is a pipe by name. gone returns when nobody holds it any more, or
// says that somebody still does.
func nestPipe(tb testing.TB, dir string) (path string, gone func(within time.Duration) error) {
	tb.Helper()
	path = filepath.Join(dir, fmt.Sprintf("nest%d", time.Now().UnixNano()))
	if err := unix.Mkfifo(path, 0o666); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		tb.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	return path, func(within time.Duration) error {
		deadline := time.Now().Add(within)
		for {
			left := time.Until(deadline)
			if left <= 0 {
				return errors.New("somebody is left")
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(left.Milliseconds())+1) // its end alone
			if n > 0 {
				return nil
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
}

const patience = 10 * time.Second

func newGuard(tb testing.TB, log *zap.Logger) *proc.Guard {
	tb.Helper()
	g, err := proc.NewGuard(proc.GuardOptions{Dir: tb.TempDir(), Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := g.Close(); err != nil {
			tb.Error(err)
		}
	})
	return g
}

// Whatever a process has started is gone when the process is, however both
// behave and whoever ended it.
func TestTreeGoesToo(t *testing.T) {
	g := newGuard(t, nil)
	if m := g.Mechanisms(); !m.Pdeathsig || !m.Tag || !m.Subreaper || !m.Watchdog {
		t.Fatalf("means: %s", m)
	}
	for _, c := range []struct {
		name string
		end  func(*proc.Process) proc.Exit
	}{
		{"stopped", func(p *proc.Process) proc.Exit { return p.Stop(context.Background(), nil) }},
		{"killed by us", func(p *proc.Process) proc.Exit { return p.Stop(killed(), nil) }},
		{"killed by another", func(p *proc.Process) proc.Exit {
			syscall.Kill(p.PID(), syscall.SIGKILL)
			return p.Exit()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pipe, gone := nestPipe(t, t.TempDir())
			p, out := nestling(t, proc.Spec{Env: nestEnv(pipe, everyKind), Guard: g, Graces: quick})
			other, _ := nestling(t, proc.Spec{Env: nestEnv(pipe+"2", ""), Guard: g}, pipe+"2")
			if exit := c.end(p); exit.Signal != "killed" {
				t.Errorf("exit = %+v", exit)
			}
			if err := gone(patience); err != nil {
				t.Error(err)
			}
			if _, err := out.ReadByte(); err == nil {
				t.Error("it still speaks")
			}
			select {
			case <-other.Done():
				t.Error("another process was ended")
			default:
			}
		})
	}
}

// nestling starts a nest. A pipe that is named is made for it.
func nestling(t *testing.T, s proc.Spec, pipes ...string) (*proc.Process, *bufio.Reader) {
	t.Helper()
	for _, pipe := range pipes {
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
	}
	p := start(s)
	t.Cleanup(func() { p.Stop(killed(), nil); p.Discard() })
	out := bufio.NewReader(p.Stdout())
	if line, err := out.ReadString('\n'); line != "here\n" || err != nil {
		t.Fatalf("it said %q, %v", line, err)
	}
	return p, out
}

// A process that daemonizes lives on as long as what started it does, and is
// taken note of when it ends.
func TestAdoptedLiveOn(t *testing.T) {
	g := newGuard(t, nil)
	pipe, gone := nestPipe(t, t.TempDir())
	p, _ := nestling(t, proc.Spec{Env: nestEnv(pipe, "fledge"), Guard: g})
	number := proctree.LineageOf(p.PID())
	adopted := func() (pids []int) { // not the watchdog, nor that of a guard before
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			data, _ := os.ReadFile(list)
			for _, field := range strings.Fields(string(data)) {
				if id, _ := strconv.Atoi(field); id != p.PID() && proctree.LineageOf(id) == number {
					pids = append(pids, id)
				}
			}
		}
		return pids
	}
	// await waits until so many have come to us.
	await := func(n int) (orphans []int) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			orphans = adopted()
			if len(orphans) == n {
				return orphans
			}
			if time.Now().After(deadline) {
				for _, pid := range orphans {
					line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
					t.Logf("%s%s", line, args)
				}
				t.Fatalf("%d are with us, want %d", len(orphans), n)
			}
		}
	}
	orphans := await(1) // what started it may not be gone yet
	over := watch(t, strconv.Itoa(orphans[0]))
	syscall.Kill(orphans[0], syscall.SIGKILL)
	over()
	await(0) // reaped as we are told of its end
	p.Stop(killed(), nil)
	if err := gone(patience); err != nil {
		t.Error(err)
	}
}

// user is who a test runs a server as: -1 for who runs the test.
type user struct {
	name string
	id   int
}

func users() []user {
	all := []user{{"ourselves", -1}}
	if os.Geteuid() == 0 {
		all = append(all, user{"an ordinary user", 65534})
	}
	return all
}

// startServer starts a server as a process of its own. Nothing but its own
// guard has a hold on it.
func startServer(tb testing.TB, u user, how string) (cmd *exec.Cmd, watchdog int, dir string, gone func(time.Duration) error) {
	tb.Helper()
	top, err := os.MkdirTemp("", "nexus-proc-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(top) })
	pipe, gone := nestPipe(tb, top)
	dir = filepath.Join(top, "trees")
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(role("server"), "DIR="+dir, "NEST="+pipe, "HOW="+how)
	cmd.Stderr = os.Stderr
	if u.id >= 0 {
		if err := errors.Join(os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, u.id, u.id)); err != nil {
			tb.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.id), Gid: uint32(u.id)}}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("the server said %q, %v", line, err)
	}
	first, means, _ := strings.Cut(strings.TrimSpace(line), " ")
	watchdog, _ = strconv.Atoi(first)
	if watchdog == 0 || !strings.HasPrefix(means, "pdeathsig tag subreaper watchdog") {
		tb.Fatalf("the server said %q", line)
	}
	return cmd, watchdog, dir, gone
}

// When a server is killed, nothing is left of what it started, as root and as
// anybody else.
func TestServerKilled(t *testing.T) {
	for _, u := range users() {
		t.Run(u.name, func(t *testing.T) {
			cmd, watchdog, dir, gone := startServer(t, u, everyKind)
			over := watch(t, strconv.Itoa(watchdog))
			began := time.Now()
			cmd.Process.Kill()
			if err := gone(patience); err != nil {
				t.Fatal(err)
			}
			t.Logf("nothing is left after %v", time.Since(began))
			over()
			if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
				t.Errorf("left in the directory: %v, %v", entries, err)
			}
		})
	}
}

// Stopping a process does not save it, the watchdog and the server included.
func TestServerKilledWhileStopped(t *testing.T) {
	cmd, watchdog, _, gone := startServer(t, user{id: -1}, everyKind)
	over := watch(t, strconv.Itoa(watchdog))
	for _, pid := range []int{watchdog, cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	if err := gone(patience); err != nil {
		t.Error(err)
	}
	over()
}

// What is left when the watchdog was killed too goes when the next server starts,
// which nothing else of that home notices.
func TestNextServerSweeps(t *testing.T) {
	for _, u := range users() {
		t.Run(u.name, func(t *testing.T) {
			cmd, watchdog, dir, gone := startServer(t, u, "fledge/setsid brood/setsid")
			living, livingWatchdog, _, livingGone := startServer(t, user{id: -1}, "")
			livingOver := watch(t, strconv.Itoa(livingWatchdog))
			over := watch(t, strconv.Itoa(watchdog))
			syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP) // so that no other watchdog follows
			syscall.Kill(watchdog, syscall.SIGKILL)
			over()
			cmd.Process.Kill()
			cmd.Wait()
			if gone(200*time.Millisecond) == nil {
				t.Fatal("nothing was left: the test shows nothing")
			}
			if u.id >= 0 {
				if err := os.Chown(dir+"/"+entry(t, dir), 0, 0); err != nil { // it is ours to sweep
					t.Fatal(err)
				}
			}
			core, logs := observer.New(zap.WarnLevel)
			g, err := proc.NewGuard(proc.GuardOptions{Dir: dir, Log: zap.New(core)})
			if err != nil {
				t.Fatal(err)
			}
			if err := gone(patience); err != nil {
				t.Error(err)
			}
			if logs.FilterMessage("ended what a killed server left").Len() != 1 {
				t.Errorf("logged: %v", logs.All())
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
				t.Errorf("left in the directory: %v, %v", entries, err)
			}
			if livingGone(time.Millisecond) == nil {
				t.Error("another server's processes were ended")
			}
			living.Process.Kill()
			if err := livingGone(patience); err != nil {
				t.Error(err)
			}
			livingOver()
		})
	}
}

func entry(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("in the directory: %v, %v", entries, err)
	}
	return entries[0].Name()
}

// A server that lives is not swept by the next one of the same home, nor are
// files that no server wrote taken for one's.
func TestLivingServerIsLeftAlone(t *testing.T) {
	cmd, watchdog, dir, gone := startServer(t, user{id: -1}, "")
	over := watch(t, strconv.Itoa(watchdog))
	for _, name := range []string{"note", "ffffffffffffffff", "1", strings.Repeat("3", 40)} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := proc.NewGuard(proc.GuardOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if gone(100*time.Millisecond) == nil {
		t.Error("a living server's processes were ended")
	}
	cmd.Process.Kill()
	if err := gone(patience); err != nil {
		t.Error(err)
	}
	over()
}

// The record of a server in a copy of its home is not locked, although the server
// lives: a server on the copy ends nothing for it, and forgets it. Once it killed
// the other server with all of its agents.
func TestCopiedRecordEndsNothing(t *testing.T) {
	cmd, watchdog, dir, gone := startServer(t, user{id: -1}, "fledge/setsid")
	over := watch(t, strconv.Itoa(watchdog))
	original := filepath.Join(dir, entry(t, dir))
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"copy":                     string(text),
		"of an earlier start":      regexp.MustCompile(`"boot":"[^"]*"`).ReplaceAllString(string(text), `"boot":"x"`),
		"of an earlier version":    "/sys/fs/cgroup/nexus-" + filepath.Base(original),
		"empty":                    "",
		"more than a record has":   strings.Repeat(" ", 1<<20),
		"of another pid namespace": regexp.MustCompile(`"pid_namespace":\d+`).ReplaceAllString(string(text), `"pid_namespace":1`),
	} {
		t.Run(name, func(t *testing.T) {
			backup := t.TempDir()
			if err := os.WriteFile(filepath.Join(backup, filepath.Base(original)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.WarnLevel)
			g, err := proc.NewGuard(proc.GuardOptions{Dir: backup, Log: zap.New(core)})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if entries, err := os.ReadDir(backup); len(entries) > 0 || err != nil {
				t.Errorf("left in the directory: %v, %v", entries, err)
			}
			if logs.Len() != 1 || !strings.Contains(logs.All()[0].Message, "nothing is ended for it") {
				t.Errorf("logged: %v", logs.All())
			}
		})
	}
	if gone(time.Millisecond) == nil {
		t.Error("the processes of a living server were ended")
	}
	cmd.Process.Kill()
	if err := gone(patience); err != nil {
		t.Error(err)
	}
	over()
}

// A record that is not locked, as where the file system keeps no locks, ends
// nothing as long as its server is there.
func TestUnlockedRecordOfLivingServer(t *testing.T) {
	cmd, watchdog, dir, gone := startServer(t, user{id: -1}, "")
	over := watch(t, strconv.Itoa(watchdog))
	record := filepath.Join(dir, entry(t, dir))
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), filepath.Base(record))
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var about unix.Stat_t
	if err := unix.Stat(other, &about); err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`"inode":\d+`).ReplaceAll(text, fmt.Appendf(nil, `"inode":%d`, about.Ino))
	text = regexp.MustCompile(`"device":\d+`).ReplaceAll(text, fmt.Appendf(nil, `"device":%d`, about.Dev))
	if err := os.WriteFile(other, text, 0o600); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	g, err := proc.NewGuard(proc.GuardOptions{Dir: filepath.Dir(other), Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); err != nil || logs.FilterMessageSnippet("a server lives").Len() != 1 {
		t.Errorf("logged: %v; %v", logs.All(), err)
	}
	if gone(time.Millisecond) == nil {
		t.Error("the processes of a living server were ended")
	}
	cmd.Process.Kill()
	if err := gone(patience); err != nil {
		t.Error(err)
	}
	over()
}

// A watchdog that somebody ends is followed by another.
func TestWatchdogIsReplaced(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	newGuard(t, zap.New(core))
	first := watchdogOf(os.Getpid())
	over := watch(t, strconv.Itoa(first))
	syscall.Kill(first, syscall.SIGKILL)
	over()
	deadline := time.Now().Add(patience)
	for second := first; second == first || second == 0; second = watchdogOf(os.Getpid()) {
		if time.Now().After(deadline) {
			t.Fatalf("there is no other: %v", logs.All())
		}
	}
}

// A guard that is closed between the end of a watchdog and the start of the next
// one ends that one too. Once that one was neither ended nor followed: Close waited
// for it without end.
func TestCloseWhileWatchdogIsReplaced(t *testing.T) {
	guards, closed := make(chan *proc.Guard, 1), make(chan error, 1)
	core, _ := observer.New(zap.WarnLevel)
	log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "the watchdog was ended" { // there is none now
			g := <-guards
			go func() { closed <- g.Close() }()
			<-proc.WatchdogStopped(g)
		}
		return nil
	}))
	g, err := proc.NewGuard(proc.GuardOptions{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	guards <- g
	syscall.Kill(watchdogOf(os.Getpid()), syscall.SIGKILL)
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close does not return")
	}
	if left := watchdogOf(os.Getpid()); left != 0 {
		t.Errorf("the watchdog %d is left", left)
	}
}

// Nothing is started with a guard that is closed: nobody would end it.
func TestStartAfterClose(t *testing.T) {
	g := newGuard(t, nil)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Spec{Argv: []string{"/bin/true"}, Guard: g})
	if err == nil {
		p.Exit()
	}
	if err == nil || !strings.HasSuffix(err.Error(), "the guard is closed") {
		t.Errorf("started: %v", err)
	}
}
