package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
)

// canary is a key that must come out nowhere.
const canary = "sk-canary-3f9a77b1c2d4e5f6"

func TestMain(m *testing.M) {
	if socket := os.Getenv("BROKER_TEST_SOCKET"); socket != "" {
		os.Exit(stranger(socket))
	}
	goleak.VerifyTestMain(m)
}

// stranger is a process of its own that asks at a socket when it is told to,
// and prints what it hears.
func stranger(socket string) int {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end will do
	res, err := client(socket).Post("http://broker/p/chat/completions", "application/json", strings.NewReader(`{}`))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode)
	if _, err := io.Copy(os.Stdout, res.Body); err != nil {
		return 1
	}
	return 0
}

// process is a Conn of which a broker sees no more than this.
type process struct {
	supervisor.Conn
	pid int
}

func (p process) PID() int                             { return p.pid }
func (p process) Stop(context.Context) supervisor.Exit { return supervisor.Exit{} }

// launch is a launcher that starts nothing.
type launch func() (pid int, err error)

func (l launch) Launch(context.Context, supervisor.Spec, bool) (supervisor.Conn, error) {
	pid, err := l()
	if err != nil {
		return nil, err
	}
	return process{pid: pid}, nil
}

// noting is a launcher that notes what it is to launch.
type noting struct {
	launch
	spec *supervisor.Spec
}

func (n noting) Launch(ctx context.Context, s supervisor.Spec, again bool) (supervisor.Conn, error) {
	*n.spec = s
	return n.launch.Launch(ctx, s, again)
}

// house is a broker with one provider, "p", at an upstream of the test's.
type house struct {
	*testing.T
	*broker.Broker
	upstream *httptest.Server
	log      *strings.Builder // to be read once nothing runs
}

func newHouse(t *testing.T, o broker.Options, upstream http.HandlerFunc) *house {
	t.Helper()
	h := &house{T: t, log: &strings.Builder{}}
	if upstream != nil {
		h.upstream = httptest.NewServer(upstream)
		t.Cleanup(h.upstream.Close)
		if o.Providers == nil {
			o.Providers = map[string]broker.Provider{}
		}
		o.Providers["p"] = broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.Bearer, Key: canary, KeyName: "P_KEY"}
	}
	if o.Dirs == nil {
		o.Dirs = []string{shortDir(t)}
	}
	o.Log = logTo(h.log)
	b, err := broker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if strings.Contains(h.log.String(), canary) {
			t.Errorf("the key is in the log:\n%s", h.log)
		}
	})
	h.Broker = b
	return h
}

// shortDir is a directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// start registers an agent and starts it as this very process.
func (h *house) start(a broker.Agent) (socket string, end func()) {
	h.Helper()
	if _, err := h.Register(a); err != nil {
		h.Fatal(err)
	}
	socket = h.SocketPath(a.ID)
	conn, err := h.Launcher(launch(func() (int, error) { return os.Getpid(), nil })).Launch(h.Context(), supervisor.Spec{ID: a.ID}, false)
	if err != nil {
		h.Fatal(err)
	}
	end = func() { conn.Stop(context.Background()) }
	h.Cleanup(end)
	return socket, end
}

// client speaks to a socket and keeps no connection.
func client(socket string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: -1, // and does not say so, as a child would not
			DisableCompression:  true,
			DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
				err = safefile.SocketPath(socket, func(short string) error {
					conn, err = new(net.Dialer).DialContext(ctx, "unix", short)
					return err
				})
				return conn, err
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ask posts a body to the provider p and returns the whole answer.
func (h *house) ask(socket, body string) (*http.Response, string) {
	h.Helper()
	return h.do(socket, "POST", "/p/chat/completions", body, nil)
}

func (h *house) do(socket, method, path, body string, header http.Header) (*http.Response, string) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://broker"+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	res, err := client(socket).Do(req)
	if err != nil {
		h.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		h.Fatal(err)
	}
	return res, string(answer)
}

// patience is how long a test waits for what should come at once, before it
// fails: far more than a loaded machine needs.
const patience = 20 * time.Second

// post asks the provider p and returns the status, or what went wrong.
func post(ctx context.Context, socket string) string {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://broker/p/chat/completions", strings.NewReader("{}"))
	if err != nil {
		return err.Error()
	}
	res, err := client(socket).Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || gjson.GetBytes(body, "error").Exists() {
		return fmt.Sprintf("%s, %s, %v", res.Status, body, err)
	}
	return res.Status
}

// usage waits for nothing: an answer that is over is counted.
func (h *house) usage(agent string) broker.Usage {
	h.Helper()
	u, ok := h.Usage(agent)
	if !ok {
		h.Fatalf("nothing is known of %s", agent)
	}
	return u
}

func logTo(w *strings.Builder) *zap.Logger { return newTestLog(w) }
