package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// nobody is an ordinary user, as whom a server runs that root starts.
const nobody = 65534

// faulty is a server of an ordinary user, with an agent "well" that nothing is
// wrong with. Its child is a link.
type faulty struct {
	*live
	dir, child string
	client     *http.Client // keeps one connection
}

// oneConnection is an [http.RoundTripper] over one connection for each server. A transport of net/http gives up the connection of a request that it has seen
// written only 50 ms after its answer came, as it may on a busy machine, and a starved server takes no other.
type oneConnection struct {
	conn net.Conn // nil at first
	host string
	read *bufio.Reader
}

func (o *oneConnection) RoundTrip(req *http.Request) (*http.Response, error) {
	if o.host != req.URL.Host {
		o.close()
		conn, err := net.Dial("tcp", req.URL.Host)
		if err != nil {
			return nil, err
		}
		o.conn, o.host, o.read = conn, req.URL.Host, bufio.NewReader(conn)
	}
	if err := o.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := req.Write(o.conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(o.read, req)
}

func (o *oneConnection) close() {
	if o.conn != nil {
		o.conn.Close()
	}
}

func newFaulty(t *testing.T, prepare func(*exec.Cmd)) *faulty {
	t.Helper()
	dir, err := os.MkdirTemp("", "nexus-faults-") // not t.TempDir, which is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	by := &oneConnection{}
	t.Cleanup(by.close)
	f := &faulty{dir: dir, child: filepath.Join(dir, "child"), client: &http.Client{Transport: by}}
	f.live = &live{T: t, home: filepath.Join(dir, "home"), cwd: filepath.Join(dir, "work"), log: &bytes.Buffer{}}
	for _, path := range []string{f.home, f.cwd} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.link()
	f.give(f.dir, f.home, f.cwd)
	f.prepare = func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--child", f.child)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		if prepare != nil {
			prepare(cmd)
		}
	}
	f.again()
	f.create("well", `{"agent_id":"well"}`)
	f.ask("/", "list_sessions", "{}") // which keeps a descriptor from the first time on
	return f
}

// give makes paths the server's.
func (f *faulty) give(paths ...string) {
	f.Helper()
	if os.Getenv(inNamespace) != "" {
		return // there is nobody else
	}
	for _, path := range paths {
		if err := os.Chown(path, nobody, nobody); err != nil && os.Getuid() == 0 {
			f.Fatal(err)
		}
	}
}

func (f *faulty) link() {
	f.Helper()
	_ = os.Remove(f.child) // it may not be there
	if err := os.Symlink(filepath.Join(programs, "nexus-child"), f.child); err != nil {
		f.Fatal(err)
	}
}

// replace puts a file in the place of nexus-child.
func (f *faulty) replace(content string, mode os.FileMode) {
	f.Helper()
	if err := os.Remove(f.child); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(f.child, []byte(content), mode); err != nil {
		f.Fatal(err)
	}
	f.give(f.child)
}

// ask calls a method over the connection that is there already.
func (f *faulty) ask(path, method, params string) string {
	f.Helper()
	status, answer := f.over(http.MethodPost, path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if status != http.StatusOK {
		f.Errorf("%s: HTTP %d %s", method, status, answer)
	}
	return answer
}

func (f *faulty) over(method, path, body string) (status int, answer string) {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	status, answer, err = do(f.client, req)
	if err != nil {
		f.Fatal(err)
	}
	return status, answer
}

func (f *faulty) create(id, params string) {
	f.Helper()
	if answer := f.ask("/", "create_agent", params); gjson.Get(answer, "result.agent_id").Str != id {
		f.Fatalf("create %s: %s", id, answer)
	}
}

// well sees that the server answers, and another agent too.
func (f *faulty) well() {
	f.Helper()
	if status, answer := f.over(http.MethodGet, "/healthz", ""); status != http.StatusOK {
		f.Errorf("healthz: HTTP %d %s", status, answer)
	}
	if answer := f.ask("/agent/well", "send", `{"content":"hello"}`); gjson.Get(answer, "result.stop_reason").Str != "completed" {
		f.Errorf("another agent: %s", answer)
	}
}

// holdings are what the server has that a failure could leave behind.
type holdings struct{ goroutines, descriptors, children int }

func (f *faulty) holdings() holdings {
	f.Helper()
	_, answer := f.over(http.MethodGet, "/readyz", "")
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.cmd.Process.Pid))
	if err != nil && os.Getuid() == 0 { // the server shows them to root alone
		f.Fatal(err)
	}
	return holdings{int(gjson.Get(answer, "goroutines").Int()), len(entries), len(childrenOf(f.T, f.cmd.Process.Pid))}
}

// wantNothingLeft waits until the server has no more than before.
func (f *faulty) wantNothingLeft(before holdings) {
	f.Helper()
	eventually(f.T, "something is left", func() (int, error) {
		if now := f.holdings(); now.goroutines > before.goroutines || now.descriptors > before.descriptors || now.children > before.children {
			return 0, fmt.Errorf("before %+v, after %+v", before, now)
		}
		return 0, nil
	})
}

// wantNamed wants an error whose data has the type, details that say all of the
// texts, and a way out.
func (f *faulty) wantNamed(answer, kind string, texts ...string) {
	f.Helper()
	data := gjson.Get(answer, "error.data")
	if data.Get("type").Str != kind || len(data.Get("recovery_suggestions").Array()) == 0 {
		f.Errorf("got %s, want the type %s and suggestions", answer, kind)
	}
	for _, text := range texts {
		// What the message says, the details do not say again.
		if said := gjson.Get(answer, "error.message").Str + "\n" + data.Get("details").Str; !strings.Contains(said, text) {
			f.Errorf("%q does not say %q", said, text)
		}
	}
}

// limit sets a soft limit of the server's process until heal is called.
func (f *faulty) limit(resource int, soft uint64) (heal func()) {
	f.Helper()
	var before unix.Rlimit
	f.asNobody(func(pid int) error {
		if err := unix.Prlimit(pid, resource, nil, &before); err != nil {
			return err
		}
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: soft, Max: before.Max}, nil)
	})
	return func() {
		f.asNobody(func(pid int) error { return unix.Prlimit(pid, resource, &before, nil) })
	}
}

// asNobody does something to the server's process as its user, which root may
// not do without all of its capabilities.
func (f *faulty) asNobody(do func(pid int) error) {
	f.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if os.Getuid() == 0 {
			for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
				if _, _, errno := unix.RawSyscall(call, nobody, nobody, nobody); errno != 0 {
					done <- errno
					return
				}
			}
		}
		done <- do(f.cmd.Process.Pid)
	}()
	if err := <-done; err != nil {
		f.Fatal(err)
	}
}

// Whatever keeps an agent from starting has a name for the client, takes nothing
// from the server, and is nobody else's matter. Once it is mended, the same
// request succeeds.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, nil)
	f.well() // what is made once
	for _, c := range []struct {
		name  string
		spoil func() (heal func())
		texts []string // of the details
	}{
		{"EMFILE", func() func() { return f.limit(unix.RLIMIT_NOFILE, 0) }, []string{"too many open files"}},
		{"EAGAIN", func() func() { return f.limit(unix.RLIMIT_NPROC, 0) }, []string{"there are too many processes (ulimit -u)"}},
		{"no program", func() func() {
			if err := os.Remove(f.child); err != nil {
				t.Fatal(err)
			}
			return f.link
		}, []string{f.child + ": there is no such program"}},
		{"EACCES", func() func() {
			f.replace("#!/bin/sh\n", 0o600)
			return f.link
		}, []string{f.child + ": it may not be executed"}},
		{"a text", func() func() {
			f.replace("hello\n", 0o700)
			return f.link
		}, []string{f.child + ": it is no program for this machine"}},
		{"another machine's program", func() func() {
			f.replace(foreignELF(t), 0o700)
			return f.link
		}, []string{f.child + ": it is no program for this machine"}},
		{"no interpreter", func() func() {
			f.replace("#!/no/such/interpreter\n", 0o700)
			return f.link
		}, []string{f.child + ": its interpreter is missing"}},
		{"another program", func() func() {
			f.replace("#!/bin/sh\necho who am I >&2\nexit 7\n", 0o700)
			return f.link
		}, []string{"child ended before it was ready", "exit status 7", "who am I"}},
		{"an unreadable session", func() func() {
			saved := filepath.Join(f.home, "sessions", "ill.jsonl")
			if err := os.Chmod(saved, 0); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Chmod(saved, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"sessions/ill.jsonl", "permission denied"}},
		{"E2BIG", func() func() { return func() {} }, []string{"its arguments and environment are too large", "bytes)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.live.T = t
			before := f.holdings()
			heal := c.spoil()
			var answers []string
			for range 3 {
				params := `{"agent_id":"ill"}`
				if c.name == "E2BIG" {
					params = fmt.Sprintf(`{"agent_id":"ill","allowed_write_paths":["/%s"]}`, strings.Repeat("x", 200<<10))
				}
				answers = append(answers, f.ask("/", "create_agent", params))
			}
			f.well()
			heal()
			for _, answer := range answers {
				kind := "START_FAILED"
				if c.name == "an unreadable session" {
					kind = "SESSION_DAMAGED"
				}
				f.wantNamed(answer, kind, c.texts...)
			}
			f.wantNothingLeft(before)
			f.create("ill", `{"agent_id":"ill"}`)
			f.ask("/", "destroy_agent", `{"agent_id":"ill"}`)
			f.wantNothingLeft(before)
		})
	}
	f.live.T = t
	f.end()
}

// foreignELF is our own program with another machine in its header.
func foreignELF(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "nexus-child"))
	if err != nil {
		t.Fatal(err)
	}
	program[18], program[19] = 0x16, 0 // e_machine: EM_S390
	return string(program)
}

// A server whose user may have no more processes may have no more threads
// either, and goes on with those that it has.
func TestNoThreads(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, nil)
	heal := f.limit(unix.RLIMIT_NPROC, 0)
	var asking sync.WaitGroup
	answers := make(chan string, 32)
	for i := range cap(answers) {
		asking.Go(func() { answers <- f.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"a%d"}`, i)) })
		asking.Go(func() { f.send("well", "hello") })
	}
	asking.Wait()
	close(answers)
	f.well()
	heal()
	for answer := range answers {
		f.wantNamed(answer, "START_FAILED", "there are too many processes (ulimit -u)")
	}
	f.create("a", `{"agent_id":"a"}`)
	f.end()
}

// A server whose descriptors clients have taken answers those that it has, and
// everybody when they have gone.
func TestDescriptorsTaken(t *testing.T) {
	f := newFaulty(t, nil)
	f.well()
	before := f.holdings()
	f.limit(unix.RLIMIT_NOFILE, 64)
	var held []net.Conn
	answered := func(conn net.Conn) bool {
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", strings.TrimPrefix(f.url, "http://"))
		_, err := conn.Read(make([]byte, 1024))
		return err == nil
	}
	for len(held) < 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		held = append(held, conn)
		if !answered(conn) {
			break
		}
	}
	if len(held) > 64 {
		t.Fatalf("%d connections are taken with 64 descriptors", len(held))
	}
	f.wantNamed(f.ask("/", "create_agent", `{"agent_id":"ill"}`), "START_FAILED", "too many open files")
	f.well()
	for _, conn := range held {
		conn.Close()
	}
	f.wantNothingLeft(before)
	if status, _, err := request(http.MethodGet, f.url+"/healthz", http.Header{}, ""); err != nil || status != http.StatusOK {
		t.Errorf("a new connection: HTTP %d, %v", status, err)
	}
	f.create("ill", `{"agent_id":"ill"}`)
	f.end()
}

// An agent that cannot come back says why, for as long as that is so.
func TestVanished(t *testing.T) {
	t.Parallel() // most of it is waiting
	f := newFaulty(t, nil)
	cwd := filepath.Join(f.cwd, "gone")
	dir := func() {
		if err := os.Mkdir(cwd, 0o700); err != nil {
			t.Fatal(err)
		}
		f.give(cwd)
	}
	unlink := func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name        string
		spoil, heal func()
		says        string
	}{
		{"working directory", func() { unlink(cwd) }, dir, "its working directory " + cwd},
		{"program", func() { unlink(f.child) }, f.link, f.child + ": there is no such program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.live.T = t
			if c.name == "working directory" {
				dir()
			}
			f.create("ill", fmt.Sprintf(`{"agent_id":"ill","cwd":%q}`, cwd))
			f.ask("/agent/ill", "send", `{"content":"My name is Alice"}`)
			child := f.pid("ill") // over a connection of its own
			before := f.holdings()
			c.spoil()
			f.asNobody(func(int) error { return syscall.Kill(child, syscall.SIGKILL) })
			eventually(t, "the agent fails", func() (int, error) {
				answer := f.ask("/", "list_agents", `{}`)
				if state := gjson.Get(answer, `result.agents.#(agent_id=="ill").state`).Str; state != "failed" {
					return 0, fmt.Errorf("it is %s", state)
				}
				return 0, nil
			})
			f.wantNamed(f.ask("/agent/ill", "send", `{"content":"hello"}`), "AGENT_FAILED", c.says)
			f.well()
			c.heal()
			f.ask("/agent/ill", "shutdown", `{}`)
			if answer := f.ask("/agent/ill", "send", `{"content":"What is my name?"}`); !strings.Contains(gjson.Get(answer, "result.content").Str, "Alice") {
				t.Errorf("once it is mended: %s", answer)
			}
			f.wantNothingLeft(before)
			f.ask("/", "destroy_agent", `{"agent_id":"ill"}`)
		})
	}
	f.live.T = t
	closed := filepath.Join(f.cwd, "closed")
	below := filepath.Join(closed, "below")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	f.give(closed, below)
	f.create("shut", fmt.Sprintf(`{"agent_id":"shut","cwd":%q}`, below))
	f.ask("/agent/shut", "send", `{"content":"hello"}`)
	f.ask("/", "destroy_agent", `{"agent_id":"shut"}`)
	chmod := func(mode fs.FileMode) {
		if err := os.Chmod(closed, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0)
	f.wantNamed(f.ask("/agent/shut", "send", `{"content":"hello"}`), "DIRECTORY_GONE", below+", which may not be entered")
	chmod(0o700)
	if answer := f.ask("/agent/shut", "send", `{"content":"hello"}`); !gjson.Get(answer, "result").Exists() {
		t.Errorf("once it may be entered: %s", answer)
	}
	f.end()
}
