package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// httpManager is the manager of one server, s, that is reached at a URL.
func httpManager(t *testing.T, url string, o mcp.Options) *mcp.Manager {
	t.Helper()
	o.Servers = mcp.Load(mcp.Files{Personal: write(t, `{"mcpServers":{"s":{"url":"`+url+`","timeout_s":20,"headers":{"Authorization":"Bearer tok-12345","X-Key":"tok-12345"}}}}`)})
	o.Wait = 20 * time.Second
	m := manage(t, o)
	m.Prepare(t.Context())
	return m
}

// over gives a server of the SDK that has no session any more after the test.
func over(t *testing.T, server *sdk.Server) *sdk.Server {
	t.Helper()
	t.Cleanup(func() {
		for s := range server.Sessions() {
			s.Close()
		}
	})
	return server
}

// listen serves a handler for the time of the test.
func listen(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams that nobody reads hold Close up
		s.Close()
	})
	return s.URL
}

// TestHTTP goes through the SDK's own server, in both forms of answers.
func TestHTTP(t *testing.T) {
	for _, tc := range []struct {
		name string
		json bool
	}{{"streams", false}, {"plain answers", true}} {
		t.Run(tc.name, func(t *testing.T) {
			server := over(t, newServer(nil))
			handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{JSONResponse: tc.json})
			changed := make(chan struct{}, 10)
			core, _ := observer.New(zap.InfoLevel)
			log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
				if e.Message == "mcp server has other tools" {
					changed <- struct{}{}
				}
				return nil
			}))
			var without atomic.Int32
			m := httpManager(t, listen(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer tok-12345" {
					without.Add(1)
				}
				handler.ServeHTTP(w, r)
			}), mcp.Options{Log: log})
			if got := status(m); got.State != protocol.MCPReady || got.Transport != "http" || got.Tools != 11 {
				t.Fatalf("status %+v", got)
			}
			if got := text(t, m, "mcp_s_echo", "text", "over HTTP"); got != "over HTTP" {
				t.Errorf("echo gave %q", got)
			}
			text(t, m, "mcp_s_grow")
			<-changed // the server said so on a stream of its own
			if got := text(t, m, "mcp_s_grown"); got != "I am new" {
				t.Errorf("the new tool gave %q", got)
			}
			if n := without.Load(); n != 0 {
				t.Errorf("%d requests had no key", n)
			}
		})
	}
}

// TestHTTPForgets is about a server that was started anew between two calls: the
// second one is not lost.
func TestHTTPForgets(t *testing.T) {
	fresh := func() http.Handler {
		server := over(t, newServer(nil))
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	}
	var handler atomic.Value
	handler.Store(fresh())
	m := httpManager(t, listen(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		handler.Load().(http.Handler).ServeHTTP(w, r)
	}), mcp.Options{})
	text(t, m, "mcp_s_echo", "text", "one")
	handler.Store(fresh())
	if got := text(t, m, "mcp_s_echo", "text", "two"); got != "two" {
		t.Errorf("echo gave %q", got)
	}
}

// TestHTTPCancel ends a call over HTTP: the server is told.
func TestHTTPCancel(t *testing.T) {
	ev := &events{started: make(chan struct{}), cancelled: make(chan struct{})}
	server := over(t, newServer(ev))
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	m := httpManager(t, listen(t, handler.ServeHTTP), mcp.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := find(t, m, "mcp_s_hang").Run(ctx, tool.Call{Input: input(t)})
		failed <- err
	}()
	<-ev.started
	cancel()
	if err := <-failed; err != context.Canceled {
		t.Errorf("the call ended with %v", err)
	}
	<-ev.cancelled
}

// bare is a server that answers by hand: reply has each request but the first
// ones of a session, of which there are so many.
func bare(reply func(w http.ResponseWriter, r *http.Request, method string, id int64), sessions *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		method, id := gjson.GetBytes(body, "method").Str, gjson.GetBytes(body, "id")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodPost:
			reply(w, r, r.Method, 0)
		case !id.Exists():
			w.WriteHeader(http.StatusAccepted)
		case method == "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(sessions.Add(1)))
			answer(w, id.Int(), `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case method == "tools/list":
			answer(w, id.Int(), `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
		default:
			reply(w, r, method, id.Int())
		}
	}
}

// TestHTTPHostile is about servers that do not do as they should. Each costs
// one call.
func TestHTTPHostile(t *testing.T) {
	kib := strings.Repeat("x", 1<<10)
	stream := func(w http.ResponseWriter, r *http.Request, event string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	}
	for _, tc := range []struct {
		name  string
		reply func(w http.ResponseWriter, r *http.Request, id int64)
		want  string
	}{
		{"a huge answer", func(w http.ResponseWriter, _ *http.Request, id int64) {
			answer(w, id, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 9<<20)+`"}]}`)
		}, "it sent a message of more than 8388608 bytes"},
		{"an event without an end", func(w http.ResponseWriter, r *http.Request, _ int64) { stream(w, r, "data: "+kib+"\n") }, "it sent a message of more than 8388608 bytes"},
		{"events that nobody asked for", func(w http.ResponseWriter, r *http.Request, _ int64) {
			stream(w, r, `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+kib+`"}}`+"\n\n")
		}, "it floods"},
		{"comments", func(w http.ResponseWriter, r *http.Request, _ int64) { stream(w, r, ": ping\n\n") }, "it floods"},
		{"an event that is no JSON", func(w http.ResponseWriter, r *http.Request, _ int64) { stream(w, r, "data: {]\n\n") }, "it sent what is no message"},
		{"an answer that is no JSON", func(w http.ResponseWriter, _ *http.Request, _ int64) { io.WriteString(w, "{]") }, "it sent what is no message"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request, _ int64) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "Temporary Redirect"},
		{"an error of HTTP", func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }, "Bad Gateway"},
		{"an error of its own", func(w http.ResponseWriter, _ *http.Request, id int64) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no such thing as tok-12345"}}`, id)
		}, "the MCP server s: no such thing as [secret] (code -32000)"},
		{"a stream that ends too soon", func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "text/event-stream")
		}, "it ended its answer without a result"},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request, int64) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls, elsewhere, sessions atomic.Int32
			m := httpManager(t, listen(t, bare(func(w http.ResponseWriter, r *http.Request, method string, id int64) {
				switch {
				case r.URL.Path == "/elsewhere":
					elsewhere.Add(1)
				case method != "tools/call":
					w.WriteHeader(http.StatusMethodNotAllowed)
				case calls.Add(1) == 1:
					tc.reply(w, r, id)
				default:
					answer(w, id, fine)
				}
			}, &sessions)), mcp.Options{HTTP: &http.Transport{DisableKeepAlives: true}})
			fails(t, m, "mcp_s_t", tc.want)
			if got := text(t, m, "mcp_s_t"); got != "fine" {
				t.Errorf("the next call gave %q", got)
			}
			if n := elsewhere.Load(); n != 0 {
				t.Errorf("%d requests went elsewhere", n)
			}
		})
	}
}

// direct is a network that reaches one handler, without connections: time in
// the bubble of a test passes there too. A GET gets no answer.
type direct struct{ http.HandlerFunc }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	answered := make(chan *http.Response)
	if r.Method == http.MethodPost {
		go func() {
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			select {
			case answered <- w.Result():
			case <-r.Context().Done():
			}
		}()
	}
	select {
	case resp := <-answered:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestHTTPHang is about a server that lets the request for a stream of its own
// hang, which counts as having none, and a call, which fails after its time.
func TestHTTPHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions, calls atomic.Int32
		m := httpManager(t, "http://localhost/", mcp.Options{HTTP: direct{bare(func(w http.ResponseWriter, r *http.Request, method string, id int64) {
			if method == "tools/call" && calls.Add(1) == 2 {
				answer(w, id, fine)
				return
			}
			<-r.Context().Done()
		}, &sessions)}})
		began := time.Now()
		fails(t, m, "mcp_s_t", "the MCP server s: no answer after 20s")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("that took %v", took)
		}
		if got := text(t, m, "mcp_s_t"); got != "fine" {
			t.Errorf("got %q; %+v", got, status(m))
		}
		if n := sessions.Load(); n != 2 { // its pings hang too
			t.Errorf("%d sessions, want 2", n)
		}
	})
}

// TestHTTPDisconnect ends a server in the middle of a call, and does not wait for
// what it never says.
func TestHTTPDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions atomic.Int32
		started := make(chan struct{})
		m := httpManager(t, "http://localhost/", mcp.Options{HTTP: direct{bare(func(_ http.ResponseWriter, r *http.Request, _ string, _ int64) {
			started <- struct{}{}
			<-r.Context().Done()
		}, &sessions)}})
		failed := make(chan error)
		go func() {
			_, err := find(t, m, "mcp_s_t").Run(t.Context(), tool.Call{Input: input(t)})
			failed <- err
		}()
		<-started
		began := time.Now()
		if err := m.Disconnect(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil || !strings.HasSuffix(err.Error(), "which may have taken effect: it was disconnected") {
			t.Errorf("the call ended with %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("that took %v", took)
		}
	})
}

// TestHTTPNobody has an address where nobody listens.
func TestHTTPNobody(t *testing.T) {
	m := httpManager(t, "http://127.0.0.1:1/?token=tok-secret", mcp.Options{})
	got := status(m)
	if got.State != protocol.MCPFailed || !strings.Contains(got.Error, "connection refused") || strings.Contains(got.Error, "tok-") {
		t.Errorf("status %+v", got)
	}
}

// TestHTTPResume is about streams that break: an answer is asked for by the last event before it,
// and the server's own stream is opened again.
func TestHTTPResume(t *testing.T) {
	var mu sync.Mutex
	var asked []string // the requests for streams, by their last event
	reopened := make(chan struct{})
	m := httpManager(t, listen(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		method, id := gjson.GetBytes(body, "method").Str, gjson.GetBytes(body, "id").Int()
		event := func(id, text string) { fmt.Fprintf(w, "id: %s\nretry: 1\ndata: %s\n\n", id, text) }
		if r.Method == http.MethodPost && (r.Header.Get("Mcp-Protocol-Version") == "2025-06-18") != (method != "initialize") {
			t.Errorf("%s has the version %q", method, r.Header.Get("Mcp-Protocol-Version"))
		}
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			last := r.Header.Get("Last-Event-Id")
			mu.Lock()
			asked = append(asked, last)
			mu.Unlock()
			switch last {
			case "": // the first of its own
				event("own-1", `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			case "own-1":
				close(reopened)
				event("own-2", `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case "call-1":
				fmt.Fprint(w, "id: call-2\ndata: ")
				answer(w, 3, fine)
				fmt.Fprint(w, "\n")
			}
		case method == "initialize":
			w.Header().Set("Content-Type", "application/json")
			answer(w, id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case method == "tools/list":
			w.Header().Set("Content-Type", "application/json")
			answer(w, id, `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
		case method == "tools/call":
			if limit := gjson.GetBytes(body, `params._meta.nexus/timeout_ms`).Int(); limit != 20_000 {
				t.Errorf("the call has the time limit %d", limit)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			event("call-1", `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}), mcp.Options{})
	if got := text(t, m, "mcp_s_t"); got != "fine" {
		t.Errorf("got %q", got)
	}
	<-reopened
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(asked)
	if want := []string{"", "call-1", "own-1"}; !slices.Equal(asked, want) {
		t.Errorf("streams were asked for after %q, want %q", asked, want)
	}
}

// TestHTTPGone is about a server that is no longer there when it is called: the call cannot have
// taken effect, is made again on a new connection, and says why that failed.
func TestHTTPGone(t *testing.T) {
	var sessions, ended atomic.Int32
	s := httptest.NewServer(bare(func(w http.ResponseWriter, r *http.Request, method string, id int64) {
		switch {
		case r.Method == http.MethodDelete:
			ended.Add(1)
		case method == "tools/call":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"no such tool"}}`, id)
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}, &sessions))
	defer s.Close()
	m := httpManager(t, s.URL, mcp.Options{HTTP: &http.Transport{DisableKeepAlives: true}})
	fails(t, m, "mcp_s_t", "the MCP server s: no such tool (code -32602)")
	if err := m.Disconnect(t.Context(), "s"); err != nil || ended.Load() != 1 {
		t.Errorf("%v; %d sessions of %d were ended at the server", err, ended.Load(), sessions.Load())
	}
	if err := m.Connect(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err := call(t, m, "mcp_s_t")
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "may have taken effect") {
		t.Errorf("a call without a server: %v", err)
	}
}

// TestSecretsInResults is about a server that gives a header's value back, in a text that is JSON and in
// structured content: the model does not get it, however it is spelled.
func TestSecretsInResults(t *testing.T) {
	for _, result := range []string{
		`{"content":[{"type":"text","text":"{\"h\": \"t\\u006fk-12345\"}"}]}`,
		`{"content":[{"type":"text","text":"\u0074ok-12345"}]}`,
		`{"content":[],"structuredContent":{"h":"\u0074ok-12345"}}`,
	} {
		var sessions atomic.Int32
		m := httpManager(t, listen(t, bare(func(w http.ResponseWriter, _ *http.Request, method string, id int64) {
			if method != "tools/call" {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			answer(w, id, result)
		}, &sessions)), mcp.Options{})
		if got := text(t, m, "mcp_s_t"); !strings.Contains(got, "[secret]") || strings.Contains(got, "12345") {
			t.Errorf("%s gives %s", result, got)
		}
	}
}

// A server at the addresses of a cloud's metadata is not reached, by whatever text or name, as
// it would give the machine's credentials to whoever asks; other private ones are.
func TestMetadataIsNotReached(t *testing.T) {
	for _, url := range []string{
		"https://169.254.169.254/mcp", "https://[::ffff:169.254.169.254]/mcp", "https://[fd00:ec2::254]/mcp", "https://metadata.google.internal/mcp",
		"https://100.100.100.200:443/mcp", "https://[fe80::1]/mcp",
	} {
		m := httpManager(t, url, mcp.Options{})
		if s := m.Status()[0]; s.State != protocol.MCPFailed || !strings.Contains(s.Error, "is not reached") {
			t.Errorf("%s: %+v", url, s)
		}
	}
}
