package modelgate_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"nexus.internal/child/foreign/modelgate"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toServer sends all requests to a server, as the client of the broker does.
type toServer struct {
	*http.Transport
	host string
}

func (t toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = t.host
	return t.Transport.RoundTrip(r)
}

// opened is a gate to a service that tells what it was asked.
func opened(t *testing.T, o modelgate.Options, service http.HandlerFunc) (base, token string) {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o.Broker = toServer{transport, strings.TrimPrefix(server.URL, "http://")}
	gate, err := modelgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		gate.Serve(ctx, socket)
	}()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	environ, _ := gate.Tell(ln.Addr().String())
	for _, pair := range environ {
		switch name, value, _ := strings.Cut(pair, "="); {
		case strings.HasSuffix(name, "_URL"):
			base = value
		case strings.HasSuffix(name, "_KEY"), strings.HasSuffix(name, "_TOKEN"):
			token = value
		}
	}
	return base, token
}

func ask(t *testing.T, method, url, body string, header ...string) string {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", string(text), err)
}

// TestGate passes on what the dialect has, with nothing of the program's credentials, and refuses the rest.
func TestGate(t *testing.T) {
	base, token := opened(t, modelgate.Options{Provider: "a b", Type: "anthropic", Protocol: "claude"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		model := r.Header.Get(protocol.ModelHeader)
		if got := r.Header.Values(protocol.ProgramHeader); !slices.Equal(got, []string{"1"}) {
			t.Errorf("that it is of a program is said by %q", got)
		}
		for _, name := range []string{"Accept-Encoding", "Content-Length", "User-Agent", protocol.ModelHeader, protocol.ProgramHeader} {
			r.Header.Del(name)
		}
		fmt.Fprintf(w, "%s %s %v %s %s", r.Method, r.RequestURI, r.Header, model, body)
	})
	const body = `{"model":"m","messages":[]}`
	for _, test := range []struct {
		name, method, path, body string
		header                   []string
		want                     string
	}{
		{"bearer", "POST", "/v1/messages?beta=true&model=big&key=", body, []string{"Authorization", "Bearer " + token, "Cookie", "x", "Openai-Organization", "other", "X-Custom", "x", "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "b", "Content-Type", "x/y"}, `200 POST /a%20b/v1/messages?beta=true map[Anthropic-Beta:[b] Anthropic-Version:[2023-06-01]] m ` + body},
		{"x-api-key, and a lie about the model", "POST", "/v1/messages", body, []string{"X-Api-Key", token, protocol.ModelHeader, "cheap", protocol.ProgramHeader, ""}, `200 POST /a%20b/v1/messages map[] m `},
		{"as Google's", "GET", "/v1/models/x?key=" + token, "", nil, `200 GET /a%20b/v1/models/x map[]`},
		{"x-goog-api-key", "GET", "/models", "", []string{"X-Goog-Api-Key", token}, `200 GET /a%20b/v1/models map[]`},
		{"no token", "POST", "/v1/messages", body, nil, "401 "},
		{"a part of it", "POST", "/v1/messages", body, []string{"X-Api-Key", token[:len(token)-1]}, "401 "},
		{"an empty one", "POST", "/v1/messages?key=", body, []string{"Authorization", "Bearer "}, "401 "},
		{"another dialect", "POST", "/v1/chat/completions", body, []string{"X-Api-Key", token}, "404 {\"type\":\"error\",\"error\":{\"type\":\"unknown_endpoint\",\"message\":\"provider a b is of type anthropic"},
		{"files", "GET", "/v1/files", "", []string{"X-Api-Key", token}, "404 "},
		{"out of the provider", "POST", "/v1/../../other/v1/messages", body, []string{"X-Api-Key", token}, "404 "},
		{"two models", "POST", "/v1/messages", `{"model":"m","\u006dodel":"big"}`, []string{"X-Api-Key", token}, `400 {"type":"error","error":{"type":"invalid_request_error","message":"a name of a member at the top`},
		{"a model's name with a NUL", "POST", "/v1/messages", `{"model":"m\u0000x"}`, []string{"X-Api-Key", token}, `400 {"type":"error","error":{"type":"invalid_request_error","message":"`},
		{"packed", "POST", "/v1/messages", body, []string{"X-Api-Key", token, "Content-Encoding", "gzip"}, "415 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ask(t, test.method, base+test.path, test.body, test.header...); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %.300s, want %s", got, test.want)
			}
		})
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: 40000000\r\n\r\n", token)
	status := make([]byte, len("HTTP/1.1 413"))
	if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 413" {
		t.Errorf("too much: got %q, %v", status, err)
	}
}

// TestGateStreams passes on an answer as it comes, and lets go of one that nobody waits for.
func TestGateStreams(t *testing.T) {
	gone := make(chan struct{})
	base, token := opened(t, modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp"}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	r, err := http.NewRequest("POST", base+"/chat/completions", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 4)
	if _, err := io.ReadFull(res.Body, piece); err != nil || string(piece) != "one\n" {
		t.Errorf("got %q, %v", piece, err)
	}
	res.Body.Close()
	<-gone
}

// TestDialects says which providers a program can be given.
func TestDialects(t *testing.T) {
	for _, test := range []struct{ kind, protocol, want string }{
		{"anthropic", "claude", "ANTHROPIC_BASE_URL=http://at ANTHROPIC_AUTH_TOKEN="},
		{"anthropic", "acp", "ANTHROPIC_BASE_URL=http://at ANTHROPIC_API_KEY="},
		{"openai", "pi", "OPENAI_BASE_URL=http://at/v1 OPENAI_API_BASE=http://at/v1 OPENAI_API_KEY="},
		{"openai-responses", "codex", `-c model_providers.nexus={name="nexus",base_url="http://at/v1",wire_api="responses",env_key="OPENAI_API_KEY",` +
			`supports_websockets=false} -c model_provider="nexus" OPENAI_BASE_URL=http://at/v1 OPENAI_API_BASE=http://at/v1 OPENAI_API_KEY=`},
		{"openai", "codex", "error: provider p is of type openai, and programs of protocol codex speak OpenAI responses"},
		{"openai", "claude", "error: provider p is of type openai, and programs of protocol claude speak Anthropic messages"},
		{"offline", "pipe", "error: provider p is of type offline, whose models no program of another make can be given"},
	} {
		gate, err := modelgate.New(modelgate.Options{Provider: "p", Type: test.kind, Protocol: test.protocol})
		got := fmt.Sprint("error: ", err)
		if err == nil {
			environ, arguments := gate.Tell("at")
			got = strings.Join(slices.Concat(arguments, environ), " ")
		}
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s for %s: got %s, want %s", test.kind, test.protocol, got, test.want)
		}
	}
}
