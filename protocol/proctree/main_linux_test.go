package proctree_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// Processes of the tests are this program with a role. Each says one line once it
// is what it should be, and has the writing end of its parent's pipe: the end of
// the pipe is the end of them all.
var roles = map[string]func(){
	"stay": func() { stay("here") },
	// parent has a child in a session of its own.
	"parent": func() {
		spawn(os.Stdout, "stay", &syscall.SysProcAttr{Setsid: true})
		stay("here")
	},
	// pair has a child in its own group.
	"pair": func() {
		spawn(os.Stdout, "stay", nil)
		stay("here")
	},
	// orphan leaves a child that has left the session, and one in its own group.
	"orphan": func() {
		spawn(os.Stdout, "stay", &syscall.SysProcAttr{Setsid: true})
		spawn(os.Stdout, "stay", nil)
		fmt.Println("here")
	},
	"server":    server,
	"subreaper": subreaper,
	"starved":   starved,
	"tracer":    tracer,
	// lessee has a child, and leases on what /proc says of it.
	"lessee": func() {
		runtime.LockOSThread()
		spawn(os.Stdout, "stay", nil)
		for _, path := range []string{"self/stat", "self/status", "thread-self/children"} {
			fd, err := unix.Open("/proc/"+path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
			}
			if err != nil {
				panic(err)
			}
		}
		stay("here")
	},
	// leaderless has a child and 64 MiB of memory, and its first thread has ended.
	"leaderless": leaderless,
	// mapper reads a byte of each 2 MiB of 4 GiB that it never writes.
	"mapper": func() {
		memory := mapMemory(4<<30, unix.PROT_READ)
		sum := byte(0)
		for at := 0; at < len(memory); at += 2 << 20 {
			sum += memory[at]
		}
		stay(fmt.Sprint("here ", sum))
	},
	// traced makes its parent its tracer, and stops.
	"traced": func() {
		runtime.LockOSThread()
		if _, _, err := syscall.RawSyscall(syscall.SYS_PTRACE, syscall.PTRACE_TRACEME, 0, 0); err != 0 {
			panic(err)
		}
		fmt.Println("here")
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
	},
}

// init keeps main on the first thread, which a leaderless process ends, to which orphans come, and whose tracer a parent is.
func init() {
	if role := os.Getenv("ROLE"); role == "leaderless" || role == "timers" || role == "subreaper" || role == "traced" {
		runtime.LockOSThread()
	}
}

func mapMemory(size, protection int) []byte {
	memory, err := unix.Mmap(-1, 0, size, protection, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err == nil {
		err = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	}
	if err != nil {
		panic(err)
	}
	return memory
}

func leaderless() {
	memory := mapMemory(64<<20, unix.PROT_READ|unix.PROT_WRITE)
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 1
	}
	spawn(os.Stdout, "stay", nil)
	go func() {
		for s, _ := proctree.ReadStat(os.Getpid()); s.State != 'Z'; s, _ = proctree.ReadStat(os.Getpid()) {
			runtime.Gosched() // until the first thread has ended
		}
		stay("here")
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv("ROLE")]; role != nil {
		role()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func stay(line string) {
	fmt.Println(line)
	for { // a test that fails may leave it
		if _, err := unix.Poll(nil, 60_000); err != unix.EINTR { // the break of a lease is a signal
			return
		}
	}
}

func command(role string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"ROLE=" + role, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	return cmd
}

// spawn starts a process that says its lines to stdout, to nobody if that is nil.
// It is left to itself.
func spawn(stdout *os.File, role string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := command(role, attr)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// start starts a process whose descendants say n lines.
func start(t *testing.T, role string, attr *syscall.SysProcAttr, n int) (cmd *exec.Cmd, says *bufio.Reader, lines []string) {
	t.Helper()
	cmd = command(role, attr)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // or the test has
		_ = cmd.Wait()
	})
	says = bufio.NewReader(stdout)
	for range n {
		line, err := says.ReadString('\n')
		if err != nil {
			t.Fatalf("%s said %q, %v", role, line, err)
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return cmd, says, lines
}

// allEnd fails unless the processes of a pipe end. The test's own time limit
// bounds the wait.
func allEnd(t *testing.T, says io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(says); len(rest) > 0 || err != nil {
		t.Errorf("they said %q, %v", rest, err)
	}
}

// server is a process with a tag whose child and grandchild bear a number of it.
func server() {
	tag, err := proctree.TakeLineageTag()
	if err != nil {
		panic(err)
	}
	fmt.Println(tag)
	child := command("parent", &syscall.SysProcAttr{Setpgid: true})
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		panic(err)
	}
	if err := proctree.SetLineage(child.Process.Pid, tag.Number(7)); err != nil {
		panic(err)
	}
	_, _ = unix.Poll(nil, 60_000)
}

// listen starts a process whose descendants say n lines.
func listen(role string, attr *syscall.SysProcAttr, n int) (*exec.Cmd, io.Reader) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := spawn(w, role, attr)
	w.Close()
	lines := bufio.NewReader(r)
	for range n {
		if _, err := lines.ReadString('\n'); err != nil {
			panic(err)
		}
	}
	return cmd, lines
}

// subreaper has a child that leads a group, and gets two orphans, of which one is
// in that group. It says how many orphans a look finds, what is left of them when
// they were killed, whether the child has ended by that, and how it and the other
// one of its group end when all children are killed.
func subreaper() {
	if err := proctree.SetSubreaper(true); err != nil {
		panic(err)
	}
	var kept *exec.Cmd
	var keptLines io.Reader
	var started sync.WaitGroup
	started.Go(func() { kept, keptLines = listen("pair", &syscall.SysProcAttr{Setpgid: true}, 2) }) // on another thread
	started.Wait()
	left, leftLines := listen("orphan", &syscall.SysProcAttr{Setpgid: true, Pgid: kept.Process.Pid}, 3)
	if err := left.Wait(); err != nil {
		panic(err)
	}
	wanted := func(pid int) bool { return pid != kept.Process.Pid }
	live, err := proctree.ReapChildren(wanted, false, nil, nil)
	fmt.Println(len(live), err)
	looked := map[int]bool{}
	alone, err := proctree.ReapOrphans(func(pid int) bool { looked[pid] = true; return wanted(pid) }, false, nil, nil)
	fmt.Println(slices.Equal(alone, live), looked[kept.Process.Pid], err)
	spared := map[int]bool{kept.Process.Pid: true}
	dead, err := proctree.EndAll(0, func(kill bool) ([]int, error) { return proctree.ReapChildren(wanted, kill, spared, nil) })
	fmt.Println(dead, err)
	_, err = io.ReadAll(leftLines) // both have ended
	fmt.Println(err, proctree.HasEnded(kept.Process.Pid))
	killed := proctree.KillChildren()
	_, err = io.ReadAll(keptLines)
	fmt.Println(killed, err, kept.Wait())
}

// tracer has a child that made it its tracer and stopped, beside one that lives. It says
// how many children live, in two looks.
func tracer() {
	stopped, _ := listen("traced", nil, 1)
	listen("stay", nil, 1)
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, stopped.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		panic(err)
	}
	wanted := func(int) bool { return true }
	for range 2 {
		live, err := proctree.ReapChildren(wanted, false, nil, nil)
		fmt.Println(len(live), err)
	}
	dead, err := proctree.EndAll(0, func(kill bool) ([]int, error) { return proctree.ReapChildren(wanted, kill, nil, nil) })
	fmt.Println(dead, err)
}

// starved has no descriptors left.
func starved() {
	child := spawn(nil, "stay", nil)
	us, err := proctree.Find(os.Getpid())
	if err != nil {
		panic(err)
	}
	tag, err := proctree.TakeLineageTag()
	if err != nil {
		panic(err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		panic(err)
	}
	none := files
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		panic(err)
	}
	_, all := proctree.All()
	_, children := proctree.Children(os.Getpid())
	_, descendants := proctree.Descendants(os.Getpid())
	_, bearing := proctree.OfLineage(tag.Has)
	lives, ended := us.Lives(), proctree.HasEnded(child.Process.Pid)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		panic(err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	for _, err := range []error{all, children, descendants, bearing} {
		fmt.Println(err != nil && !proctree.Gone(err), err)
	}
	fmt.Println(lives, ended)
}
