package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// systemd is what hears what a server tells.
type systemd struct {
	*testing.T
	socket *net.UnixConn
	path   string
}

func newSystemd(t *testing.T) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &systemd{T: t, socket: socket, path: path}
}

// next is what is told next, its lines; nil if that is nothing for a while.
func (s *systemd) next(wait time.Duration) []string {
	s.Helper()
	if err := s.socket.SetReadDeadline(time.Now().Add(wait)); err != nil {
		s.Fatal(err)
	}
	text := make([]byte, 4096)
	n, err := s.socket.Read(text)
	if err != nil {
		return nil
	}
	return strings.Split(string(text[:n]), "\n")
}

// until reads until a line begins so, and returns the lines told with it.
func (s *systemd) until(begin string) []string {
	s.Helper()
	for stop := time.Now().Add(patience); time.Now().Before(stop); {
		lines := s.next(time.Until(stop))
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, begin) }) {
			return lines
		}
	}
	s.Fatalf("nobody told %s", begin)
	return nil
}

// The server tells that it is ready when it is, that it lives as long as it
// answers, and when it ends; its children cannot tell anything.
func TestSystemd(t *testing.T) {
	t.Parallel() // most of it is waiting
	const watchdog = 400 * time.Millisecond
	hears := newSystemd(t)
	s := newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--drain-timeout", "1500ms")
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+hears.path, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	})
	if lines := hears.until("READY=1"); !slices.Contains(lines, "STATUS=listening on "+strings.TrimPrefix(s.url, "http://")) {
		t.Errorf("it is ready and tells %q", lines)
	}
	for range 3 {
		hears.until("WATCHDOG=1")
	}
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	// One that has just been forked has the server's environment until it is another program.
	eventually(t, "a process of the server could tell", func() (_ any, err error) {
		for _, pid := range append(childrenOf(t, s.cmd.Process.Pid), s.pid("a")) {
			environ, unread := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if unread != nil {
				t.Logf("the environment of %d cannot be read here: %v", pid, unread)
			}
			if strings.Contains(string(environ), "NOTIFY_SOCKET") || strings.Contains(string(environ), "WATCHDOG_USEC") {
				err = fmt.Errorf("process %d: %q", pid, environ)
			}
		}
		return nil, err
	})

	// A server that takes no connection does not live, though its process does.
	again := noDescriptors(t, s.cmd.Process.Pid)
	quiet := false
	for stop := time.Now().Add(patience); !quiet && time.Now().Before(stop); {
		quiet = hears.next(4*watchdog) == nil
	}
	if !quiet {
		t.Error("it tells that it lives, and does not answer")
	}
	again()
	hears.until("WATCHDOG=1")

	// While it drains it lives.
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { s.send("a", "count to 4000") })
	eventually(t, "the turn begins", func() (int, error) { return 0, s.busy("a") })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	lines := hears.until("STOPPING=1")
	if !slices.Contains(lines, "EXTEND_TIMEOUT_USEC=17500000") {
		t.Errorf("it ends and tells %q", lines)
	}
	hears.until("WATCHDOG=1")
	s.wait()
}

// What the watchdog wants and cannot be read is none: the server says so and goes
// on, and tells the rest.
func TestUnreadableWatchdog(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"0", "abc", "-5"} {
		t.Run(said, func(t *testing.T) {
			hears := newSystemd(t)
			s := newLive(t, func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+hears.path, "WATCHDOG_USEC="+said)
			})
			hears.until("READY=1")
			if answer := s.call("/", "create_agent", `{"agent_id":"a"}`); !strings.Contains(answer, `"result"`) {
				t.Errorf("create_agent: %s", answer)
			}
			s.end()
			if log := s.log.String(); !strings.Contains(log, "what the watchdog wants cannot be read") {
				t.Errorf("the log does not say it:\n%s", log)
			}
		})
	}
}

// noDescriptors takes from a process the right to open anything more, until
// again is called.
func noDescriptors(t *testing.T, pid int) (again func()) {
	t.Helper()
	var before unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// childrenOf are the children of a process, of all of its threads.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	children, err := proctree.Children(pid)
	if err != nil {
		t.Fatalf("the children of %d cannot be seen: %v", pid, err)
	}
	return children
}
