package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// An agent that cannot come back because the server has no descriptors, or its user
// no processes, is tried again until it can; it does not fail.
func TestStarved(t *testing.T) {
	for name, c := range map[string]struct {
		resource int
		says     string
	}{
		"EMFILE": {unix.RLIMIT_NOFILE, "too many open files"},
		"EAGAIN": {unix.RLIMIT_NPROC, "there are too many processes (ulimit -u)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			f := newFaulty(t, nil)
			f.create("ill", `{"agent_id":"ill"}`)
			f.ask("/agent/ill", "send", `{"content":"My name is Alice"}`)
			child := f.pid("ill")
			heal := f.limit(c.resource, 0)
			f.asNobody(func(int) error { return syscall.Kill(child, syscall.SIGKILL) })
			eventually(t, "more restarts than a crashing agent gets", func() (int, error) {
				ill := gjson.Get(f.ask("/", "list_agents", `{}`), `result.agents.#(agent_id=="ill")`)
				if ill.Get("state").Str == "failed" {
					t.Fatalf("it has failed: %s", ill)
				}
				if ill.Get("incarnation").Int() < 8 || !strings.Contains(ill.Get("last_error").Str, c.says) {
					return 0, errors.New(ill.Raw)
				}
				return 0, nil
			})
			f.well()
			heal()
			answer := f.ask("/agent/ill", "send", `{"content":"What is my name?"}`)
			if !strings.Contains(gjson.Get(answer, "result.content").Str, "Alice") {
				t.Errorf("once it is mended: %s", answer)
			}
			f.end()
		})
	}
}

// Strangers that take connections as fast as they can leave a server with few
// descriptors enough for its agents, for those with a key, and for its watchdog.
func TestStrangersLeaveDescriptors(t *testing.T) {
	t.Parallel() // most of it is waiting
	const watchdog = 2 * time.Second
	hears := newSystemd(t)
	s := newLive(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+hears.path, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
		cmd.Args = append([]string{"sh", "-c", `ulimit -n 256 && exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	})
	hears.until("READY=1")
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	child := s.pid("a")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	defer flood.Wait()
	defer close(stop)
	full := make(chan struct{})
	for range 2 {
		flood.Go(func() { besiege(s.url, stop, sync.OnceFunc(func() { full <- struct{}{} })) })
	}
	<-full
	<-full

	// A connection that has not shown its key yet is a stranger, too, and closed where 64 more
	// come before it does: then its client tries again.
	call := func(path, method, params string) string {
		return eventually(t, method+" during the flood", func() (string, error) {
			_, answer, err := request(http.MethodPost, s.url+path, http.Header{"Authorization": {"Bearer " + s.key}},
				fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
			return answer, err
		})
	}
	for i := range 10 {
		id := fmt.Sprintf("a%d", i)
		if answer := call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"if_exists":"use"}`, id)); gjson.Get(answer, "result.agent_id").Str != id {
			t.Errorf("create_agent during the flood: %s", answer)
		}
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent comes back", func() (int, error) {
		if a := gjson.Get(call("/", "list_agents", `{}`), `result.agents.#(agent_id=="a")`); a.Get("restarts").Int() != 1 || a.Get("state").Str != "ready" {
			return 0, errors.New(a.Raw)
		}
		return 0, nil
	})
	if answer := call("/agent/a", "send", `{"content":"echo back","request_id":"r"}`); gjson.Get(answer, "result.content").Str != "back" {
		t.Errorf("a send during the flood, after a crash: %s", answer)
	}
	for range 3 {
		hears.until("WATCHDOG=1")
	}
	s.end()
}

// besiege opens connections that say nothing, and keeps the last 300 of them, until
// stop is closed. It calls full once it has as many.
func besiege(url string, stop <-chan struct{}, full func()) {
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return
		default:
		}
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), time.Second)
		if err != nil {
			continue // it has enough of them
		}
		held = append(held, conn)
		if len(held) > 300 {
			held[0].Close()
			held = held[1:]
			full()
		}
	}
}

// fewProcesses is what the test binary is called that puts the program of its
// arguments in its place, with a limit of 40 processes and threads.
const fewProcesses = "few-processes"

func init() {
	if os.Args[0] == fewProcesses {
		err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 40, Max: 40})
		if err == nil {
			err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// A server that may have too few threads says so, and does not die of it later.
func TestTooFewThreads(t *testing.T) {
	dir, err := os.MkdirTemp("", "nexus-threads-") // not t.TempDir, which is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// Nobody else may be this user, for the limit counts all that it has.
	const loner = 65431
	if err := os.Chown(dir, loner, loner); err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", filepath.Join(programs, "nexus"), "serve", "0")
	cmd.Args[0] = fewProcesses
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "NEXUS_HOME=" + filepath.Join(dir, "home"), "GORACE=atexit_sleep_ms=0"}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: loner, Gid: loner}}
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1", err)
	}
	if text := said.String(); !strings.Contains(text, "there may be 40 processes and threads of this user") || strings.Count(text, "\n") != 1 {
		t.Errorf("it said %q, want a sentence", text)
	}
}
