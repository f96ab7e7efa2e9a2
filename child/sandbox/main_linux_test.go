package sandbox_test

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
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
	"nexus.internal/protocol/proctree"
)

// The test binary plays the reapers, and the programs that they run.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		roles[os.Args[2]](os.Args[3:])
		syscall.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// role is the command line of a role.
func role(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "role", name}, args...)
}

var roles = map[string]func(args []string){
	// stubborn ignores what can be ignored, says that it is there, and stays.
	"stubborn": func([]string) { stubborn() },
	// escape starts a stubborn one in a session of its own, waits until it is
	// there, and stays, or goes.
	"escape": func(args []string) {
		offspring(&syscall.SysProcAttr{Setsid: true}, role("stubborn"))
		if args[0] == "stay" {
			stubborn()
		}
	},
	// daemon forks twice, the last one in a session of its own, and goes.
	"daemon": func([]string) { offspring(&syscall.SysProcAttr{Setsid: true}, role("escape", "go")) },
	// dial tries a network, and says what came of it.
	"dial": func(args []string) {
		conn, err := net.DialTimeout(args[0], args[1], 5*time.Second)
		if err == nil {
			_, err = conn.Write([]byte("x"))
		}
		fmt.Println("dial:", err)
	},
	// calls tries a list of system calls by number with arguments of zero.
	"calls": func(args []string) {
		for _, arg := range args {
			number, _ := strconv.Atoi(arg)
			_, _, errno := syscall.Syscall6(uintptr(number), 0, 0, 0, 0, 0, 0)
			fmt.Println(errno == 0, errno)
		}
	},
	// children runs a program, and starts another, which it finds and ends.
	"children": func([]string) {
		argv := role("pairs")
		run := exec.Command(argv[0], argv[1:]...).Run()
		argv = role("stubborn")
		cmd := exec.Command(argv[0], argv[1:]...)
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		found, err := os.FindProcess(cmd.Process.Pid)
		if err == nil {
			err = found.Kill()
		}
		fmt.Println(run, err, cmd.Wait())
	},
	"pairs": func([]string) {
		for _, kind := range []int{unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
			_, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
			fmt.Println(err)
		}
	},
	// descriptors tells what it was given; its own are closed on exec.
	"descriptors": func([]string) {
		for fd := range 1000 {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				fmt.Print(fd, " ")
			}
		}
		stdin, _ := os.Readlink("/proc/self/fd/0")
		fmt.Println(stdin)
	},
	// supervised is a child with a program, of whose reaper it tells the id.
	"supervised": func(args []string) {
		if err := sandbox.Adopt(); err != nil {
			panic(err)
		}
		p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: args[1:], Env: []string{"TAG=" + args[0]}, Stdin: true})
		if err != nil {
			panic(err)
		}
		p.Stdin().WriteString("it has started\n")
		hear(p.Stdout(), strings.Count(strings.Join(args, " "), "escape")+1)
		fmt.Println("here")
		told := make(chan struct{})
		go func() {
			io.ReadAll(os.Stdin)
			p.Kill()
			close(told)
		}()
		exit := p.Wait()
		fmt.Println("ended", exit.Code, exit.Signal)
		<-told
	},
	// bare runs a program on a kernel without Landlock.
	"bare": func(args []string) {
		if err := sandboxtest.WithoutLandlock(); err != nil {
			panic(err)
		}
		confinement := map[string]sandbox.Confinement{"always": sandbox.Always, "possible": sandbox.WherePossible}[args[0]]
		p, err := sandbox.Start(context.Background(), sandbox.Spec{
			Argv: args[1:], Rules: sandbox.Rules{Confinement: confinement, ReadOnly: []string{"/"}, Network: true},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("runs:", p.Unconfined())
		io.Copy(os.Stdout, p.Stdout())
		p.Close()
	},
	// user runs programs as whoever it is.
	"user": func(args []string) {
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: args[:1]}
		run := func(name string, argv []string) {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: argv, Dir: args[0], Rules: rules, Env: []string{"TAG=user"}})
			if err != nil {
				fmt.Println(err)
				return
			}
			if name == "escaped" {
				hear(p.Stdout(), 2)
				p.Kill()
			}
			fmt.Printf("%s: %d\n", name, p.Wait().Code)
			p.Close()
		}
		run("own", sh("echo x > own && touch $TMPDIR/x && chmod 0 $TMPDIR"))
		run("beside", sh("cat "+args[1]+"/secret"))
		run("escaped", role("escape", "stay"))
		// The reaper's thread that it is started from is held to the same rules,
		// which is why these do not keep it from looking into that.
		rules.ReadOnly = []string{"/"}
		run("reaper", sh("for f in /proc/$PPID/task/*/maps; do head -c 1 $f >/dev/null 2>&1 && exit; done; exit 1"))
		if left, _ := filepath.Glob(os.TempDir() + "/nexus-tool-*"); len(left) > 0 {
			for _, dir := range left {
				if info, err := os.Stat(dir); err == nil && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid()) {
					fmt.Println(dir, "is left")
				}
			}
		}
	},
	// reach tries to change itself, and then its reaper.
	"reach": func([]string) {
		fmt.Println(reach(0))
		fmt.Println(reach(os.Getppid()))
	},
	// traced makes its parent its tracer, and becomes another program, for which it
	// stops.
	"traced": func(args []string) {
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); errno != 0 {
			fmt.Println(errno)
		}
		panic(syscall.Exec(args[0], args, os.Environ()))
	},
	// capabilities tells those of a program.
	"capabilities": func(args []string) {
		rules := sandbox.Rules{Confinement: sandbox.WherePossible, ReadWrite: args[:1], ReadOnly: []string{"/"}, Network: true}
		p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: []string{"grep", "^Cap", "/proc/self/status"}, Dir: args[0], Rules: rules})
		if err != nil {
			fmt.Println(err)
			return
		}
		io.Copy(os.Stdout, p.Stdout())
		p.Close()
	},
	"above":       above,
	"terminals":   terminals,
	"attributes":  attributes,
	"at-terminal": atTerminal,
	"change":      func(args []string) { fmt.Println(change(args[0])) },
	"closed":      closed,
	"crowded":     crowded,
	"devices":     func(args []string) { fmt.Println(devices(args)) },
	"watched":     func(args []string) { fmt.Println(watched(args[0])) },
	"extended":    func(args []string) { fmt.Println(extended(args[0])) },
	"shared": func(args []string) {
		key, _ := strconv.Atoi(args[0])
		fmt.Println(shared(key))
	},
	"setid": func(args []string) { fmt.Println(setID(args[0])) },
	"kept":  kept, "kernel": kernel,
	"retag": func([]string) { fmt.Println(retag()) },
	// starve takes the open files from who could kill it, and escapes.
	"starve": func([]string) {
		starve()
		offspring(&syscall.SysProcAttr{Setsid: true}, role("stubborn"))
		stubborn()
	},
	// comet forks and dies, over and over, each in a session of its own.
	"comet": func([]string) { offspring(&syscall.SysProcAttr{Setsid: true}, role("comet")) },
}

func stubborn() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	fmt.Println("here")
	for {
		_ = unix.Pause() // select {} is taken for a deadlock, without C
	}
}

// offspring starts a process and does not wait for it.
func offspring(attr *syscall.SysProcAttr, argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attr, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

// hear reads n lines that say that somebody is there.
func hear(r io.Reader, n int) {
	var heard []byte
	for b := make([]byte, 1); n > 0; {
		if _, err := r.Read(b); err != nil {
			panic(fmt.Sprintf("%v after %q", err, heard))
		}
		heard = append(heard, b[0])
		if b[0] == '\n' {
			n--
		}
	}
}

// start starts a program that carries the test's tag in its environment, and
// sees to it that it ends with the test.
func start(t *testing.T, s sandbox.Spec) *sandbox.Process {
	t.Helper()
	s.Env = append(s.Env, "TAG="+tag(t))
	p, err := sandbox.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// output runs a program and returns all that it wrote.
func output(t *testing.T, rules sandbox.Rules, dir string, argv ...string) (string, sandbox.Exit) {
	t.Helper()
	p := start(t, sandbox.Spec{Argv: argv, Dir: dir, Rules: rules})
	text, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), p.Wait()
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// tag marks the processes of one test.
func tag(t *testing.T) string { return "nexus-" + t.Name() + "-" + strconv.Itoa(os.Getpid()) }

// tagged finds the processes that carry a tag.
func tagged(t *testing.T, tag string) []int {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range environs {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append(data, 0), []byte("TAG="+tag+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		pids = append(pids, pid)
	}
	return pids
}

// none fails if a process of the test is alive, and kills it.
func none(t *testing.T, tag string) {
	t.Helper()
	for _, pid := range tagged(t, tag) {
		cmdline, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		t.Errorf("process %d is left: %q", pid, cmdline)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// signalled is none where a reaper was killed: the kernel kills its program then, and
// only a process that has adopted what reapers leave waits for its end.
func signalled(t *testing.T, tag string) {
	t.Helper()
	for _, pid := range tagged(t, tag) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		awaitEnds(t, []int{fd})
		unix.Close(fd)
	}
	none(t, tag)
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	s, err := proctree.ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s.Parent
}

// watchAll opens the processes, so that their ends can be waited for.
func watchAll(t *testing.T, pids []int) (fds []int) {
	t.Helper()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
	}
	return fds
}

// awaitEnds fails unless all processes end within 10 s.
func awaitEnds(t *testing.T, fds []int) {
	t.Helper()
	for _, fd := range fds {
		n, err := 0, error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		}
		if n != 1 {
			t.Fatalf("a process is alive after 10 s (%v)", err)
		}
	}
}
