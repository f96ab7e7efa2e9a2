package broker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
)

// endless streams until whoever asked is gone, which it tells.
func endless(began, ended chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}
}

// other starts this test's program as a process of its own, which asks once its
// stdin ends.
func other(t *testing.T, socket string) (cmd *exec.Cmd, ask io.Closer, out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), "BROKER_TEST_SOCKET="+socket)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, stdin, bufio.NewReader(stdout)
}

// Only the agent's own process is answered: what it starts is not.
func TestOtherProcessIsRefused(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	socket, _ := h.start(broker.Agent{ID: "a"})
	cmd, ask, out := other(t, socket)
	ask.Close()
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(string(said), "403\n") ||
		!strings.Contains(string(said), "this socket is for the process of agent a alone") {
		t.Errorf("got %s, %v", said, err)
	}
	if u := h.usage("a"); u != (broker.Usage{}) {
		t.Errorf("it cost %+v", u)
	}
	if err := h.Close(); err != nil || !strings.Contains(h.log.String(), "a process that is not the agent") {
		t.Errorf("it is not in the log: %v, %s", err, h.log)
	}
}

// A child that is killed in the middle of an answer ends the request at the
// service, and what it heard is paid for.
func TestKilledChildEndsItsRequest(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	h := newHouse(t, broker.Options{}, endless(began, ended))
	socket := h.SocketPath("a")
	if _, err := h.Register(broker.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	var ask io.Closer
	var out *bufio.Reader
	conn, err := h.Launcher(launch(func() (int, error) {
		cmd, ask, out = other(t, socket)
		return cmd.Process.Pid, nil
	})).Launch(t.Context(), supervisor.Spec{ID: "a"}, false)
	if err != nil {
		t.Fatal(err)
	}
	ask.Close()
	<-began
	for _, want := range []string{"200\n", "data: {}\n"} {
		if line, err := out.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	conn.Stop(t.Context())
	if u := h.usage("a"); u.Requests != 1 || u.Estimated != 1 || u.Input == 0 {
		t.Errorf("usage %+v", u)
	}
}

// The end of an incarnation ends its requests and its socket; the next one has
// the same path.
func TestStopEndsRequests(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	h := newHouse(t, broker.Options{}, endless(began, ended))
	var socket string
	for range 2 {
		again, end := h.start(broker.Agent{ID: "a"})
		if socket != "" && socket != again {
			t.Errorf("socket %s, then %s", socket, again)
		}
		socket = again
		info, err := os.Stat(socket)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		if dir, err := os.Stat(filepath.Dir(socket)); err != nil || dir.Mode().Perm() != 0o700 {
			t.Fatalf("%v, %v", dir, err)
		}
		broken := make(chan error)
		go func() {
			res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}"))
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			broken <- err
		}()
		<-began
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			end()
		}()
		<-ended
		<-stopped
		if err := <-broken; err == nil {
			t.Error("the answer seems whole")
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	}
}

// The end of an incarnation ends a request whose body its service does not read.
// Such a request does not see that its connection is closed: once the end of the
// agent, and of the server, waited for the service.
func TestStopEndsUnreadRequest(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	ours, service := net.Pipe() // without room for bytes that are not read
	defer service.Close()
	h.DialWith(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	socket, end := h.start(broker.Agent{ID: "a"})
	broken := make(chan error, 1)
	go func() {
		res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}"+strings.Repeat(" ", 64<<10)))
		if err == nil {
			res.Body.Close()
		}
		broken <- err
	}()
	var header []byte
	for one := make([]byte, 1); !bytes.HasSuffix(header, []byte("\r\n\r\n{")); header = append(header, one...) {
		if _, err := service.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		end()
	}()
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("the end waits for the service")
	}
	if err := <-broken; err == nil {
		t.Error("the request was answered")
	}
}

// starvedListener accepts its first connection for an error, as the system does while it
// cannot watch its descriptor.
type starvedListener struct {
	net.Listener
	failed bool
}

func (l *starvedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && !l.failed {
		l.failed = true
		return nil, errors.Join(c.Close(), &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("epoll_ctl", syscall.ENOSPC)})
	}
	return c, err
}

// An error of the system once ended an agent's way to its models until the agent was
// started again.
func TestSocketSurvivesFailedAccept(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	h.ListenWith(func(ln net.Listener) net.Listener { return &starvedListener{Listener: ln} })
	socket, _ := h.start(broker.Agent{ID: "a"})
	if res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}")); err == nil {
		res.Body.Close()
		t.Errorf("the connection that failed was answered: %s", res.Status)
	}
	if res, body := h.ask(socket, "{}"); res.StatusCode != http.StatusOK {
		t.Errorf("then: %s %s", res.Status, body)
	}
}

// A request that comes before the child is ready waits until it is known whose
// it is.
func TestRequestBeforeReady(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		socket := h.SocketPath("a")
		_, err := h.Register(broker.Agent{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		early, err := net.Dial("unix", socket)
		if err == nil {
			early.Close()
			t.Fatal("the socket is there before the launch")
		}
		status := make(chan int)
		conn, err := h.Launcher(launch(func() (int, error) {
			c, err := net.Dial("unix", socket)
			if err != nil {
				return 0, err
			}
			if _, err := io.WriteString(c, "GET /p/models HTTP/1.1\r\nHost: broker\r\n\r\n"); err != nil {
				return 0, err
			}
			go func() {
				defer c.Close()
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					status <- 0
					return
				}
				res.Body.Close()
				status <- res.StatusCode
			}()
			return pid, nil
		})).Launch(t.Context(), supervisor.Spec{ID: "a"}, false)
		if err != nil {
			t.Fatal(err)
		}
		want := 200
		if pid != os.Getpid() {
			want = 403
		}
		if got := <-status; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
		conn.Stop(t.Context())
	}
}

// A launch that fails leaves no socket.
func TestFailedLaunch(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	socket := h.SocketPath("a")
	if _, err := h.Register(broker.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	why := errors.New("no such program")
	if _, err := h.Launcher(launch(func() (int, error) { return 0, why })).Launch(t.Context(), supervisor.Spec{ID: "a"}, false); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
}

// Whoever opens many connections cannot keep the child from its own.
func TestManyStrangers(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	socket := h.SocketPath("a")
	if _, err := h.Register(broker.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	cmd, ask, out := other(t, socket)
	conn, err := h.Launcher(launch(func() (int, error) { return cmd.Process.Pid, nil })).Launch(t.Context(), supervisor.Spec{ID: "a"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // more than there is room for, if they counted with the child's
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ask.Close()
	if line, err := out.ReadString('\n'); err != nil || line != "200\n" {
		t.Errorf("the child: %q, %v", line, err)
	}
	conn.Stop(t.Context())
}

// 1,000 streamed answers leave nothing behind.
func TestManyStreams(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, openaiStream)
	})
	socket, _ := h.start(broker.Agent{ID: "a"})
	round := func(n int) {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range n / 10 {
					res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}"))
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := io.ReadAll(res.Body); err != nil || string(got) != openaiStream {
						t.Errorf("got %q, %v", got, err)
					}
					res.Body.Close()
				}
			})
		}
		all.Wait()
	}
	round(100)
	before := descriptors(t)
	round(1000)
	if after := descriptors(t); after > before+20 { // the pool may have grown
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if u := h.usage("a"); u.Requests < 1000 || u.Tokens() != u.Requests*127 {
		t.Errorf("usage %+v", u)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Where no socket can be made there is a stand-in, and what servers that were
// killed left is removed.
func TestDirectory(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 90))
	dead := filepath.Join(long, "dead")
	for name, dirs := range map[string][]string{"first": {long}, "second": {"/proc/nonexistent", long}} {
		if err := os.MkdirAll(dead, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, broker.Options{Dirs: dirs}, costs)
			socket, _ := h.start(broker.Agent{ID: strings.Repeat("n", 64)})
			if res, _ := h.ask(socket, "{}"); res.StatusCode != 200 || filepath.Dir(filepath.Dir(socket)) != long {
				t.Errorf("%s: %s", socket, res.Status)
			}
		})
		// It is removed meanwhile, and the broker is closed now.
		if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", dead, err)
		}
	}
}

// Run is an actor: it closes the broker when its context ends, and then no more
// sockets are made.
func TestRun(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	h := newHouse(t, broker.Options{}, endless(began, ended))
	socket, _ := h.start(broker.Agent{ID: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- h.Broker.Run(ctx) }()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}"))
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	<-began
	cancel()
	<-ended
	if err := <-ran; err != nil {
		t.Error(err)
	}
	<-asked
	if _, err := h.Launcher(launch(func() (int, error) { return 1, nil })).Launch(t.Context(), supervisor.Spec{ID: "b"}, false); err == nil {
		t.Error("a socket after the end")
	}
}

func TestNewRefuses(t *testing.T) {
	for name, p := range map[string]broker.Provider{
		"no URL":      {BaseURL: "://secret-in-the-url", Auth: broker.Bearer},
		"another one": {BaseURL: "ftp://x", Auth: broker.Bearer},
		"no method":   {BaseURL: "http://x", Auth: "magic"},
		"line break":  {BaseURL: "http://x", Auth: broker.Bearer, Key: canary + "\n", KeyName: "K"},
	} {
		b, err := broker.New(broker.Options{Providers: map[string]broker.Provider{"p": p}})
		if err == nil {
			b.Close()
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
