package broker_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/protocol"
	"nexus.internal/supervisor/broker"
)

func newTestLog(w io.Writer) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), zapcore.DebugLevel))
}

// What a service sees is the child's request with the server's key, and nothing
// of the child's that could stand for one.
func TestForward(t *testing.T) {
	tests := []struct {
		name             string
		base, path       string
		auth             broker.Auth
		wantURI, wantKey string
	}{
		{"bearer", "/v1", "/x/chat/completions", broker.Bearer, "/v1/chat/completions", "Authorization: Bearer " + canary},
		{"Azure", "/openai/deployments/d?api-version=2024-10-21", "/x/chat/completions?api-version=1&a=b", broker.APIKey, "/openai/deployments/d/chat/completions?api-version=2024-10-21&a=b", "Api-Key: " + canary},
		{"Anthropic", "", "/x/v1/messages?beta=true", broker.XAPIKey, "/v1/messages?beta=true", "X-Api-Key: " + canary},
		{"Anthropic, by the whole base_url", "/api/v1/", "/x/v1/messages", broker.XAPIKey, "/api/v1/messages", "X-Api-Key: " + canary},
		{"no key", "/", "/x/chat/completions", broker.None, "/chat/completions", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var uri, body string
			var seen http.Header
			h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				uri, body, seen = r.RequestURI, string(data), r.Header
				w.Header().Set("Set-Cookie", "session=1")
				w.Header().Set("Request-Id", "r1")
				w.Header().Set("X-Ratelimit-Remaining-Tokens", "7")
				w.Header().Set("X-Echo", canary)
				w.Header().Set(protocol.BrokerRefusal, "1") // which only the broker's own answers have
				fmt.Fprint(w, `{"ok":true}`)
			})
			h2 := newHouse(t, broker.Options{Providers: map[string]broker.Provider{
				"x": {BaseURL: h.upstream.URL + tt.base, Auth: tt.auth, Key: canary},
			}}, nil)
			socket, _ := h2.start(broker.Agent{ID: "a"})
			res, answer := h2.do(socket, "POST", tt.path, `{"model":"m"}`, http.Header{
				"Authorization": {"Bearer child"}, "X-Api-Key": {"child"}, "Api-Key": {"child"}, "Cookie": {"child=1"},
				"Connection": {"X-Hop"}, "X-Hop": {"child"}, "Proxy-Authorization": {"child"}, "X-Forwarded-For": {"child"},
				"Content-Type": {"application/json; charset=utf-7"}, "Content-Encoding": {"utf-7"}, "Anthropic-Version": {"2023-06-01"}, "User-Agent": {"sdk"},
			})
			if res.StatusCode != 200 || answer != `{"ok":true}` || uri != tt.wantURI || body != `{"model":"m"}` {
				t.Errorf("got %d %s for %s with %s; want %s", res.StatusCode, answer, uri, body, tt.wantURI)
			}
			want := http.Header{
				"Accept-Encoding": {"identity"}, "Anthropic-Version": {"2023-06-01"}, "Content-Length": {"13"},
				"Content-Type": {"application/json"}, "User-Agent": {"sdk"},
			}
			if name, value, ok := strings.Cut(tt.wantKey, ": "); ok {
				want[name] = []string{value}
			}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			for name, want := range map[string]string{"Request-Id": "r1", "X-Ratelimit-Remaining-Tokens": "7", "Set-Cookie": "", "X-Echo": "", protocol.BrokerRefusal: ""} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
		})
	}
}

// A provider without a key cannot have refused one.
func TestRefusalWithoutKey(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
	bare := newHouse(t, broker.Options{Providers: map[string]broker.Provider{"bare": {BaseURL: h.upstream.URL, Auth: broker.None}}}, nil)
	socket, _ := bare.start(broker.Agent{ID: "a"})
	const want = `provider bare wants a key, and its auth_method "none" sends none: name the environment variable of the key as api_key_env in config.json`
	if res, answer := bare.do(socket, "POST", "/bare/chat/completions", "{}", nil); res.StatusCode != 401 || gjson.Get(answer, "error.message").Str != want {
		t.Errorf("got %d %s, want 401 %s", res.StatusCode, answer, want)
	}
}

func TestRefusals(t *testing.T) {
	forwarded := 0
	h := newHouse(t, broker.Options{Providers: map[string]broker.Provider{
		"keyless":  {BaseURL: "http://127.0.0.1:1", Auth: broker.Bearer, KeyName: "KEYLESS_KEY"},
		"nameless": {BaseURL: "http://127.0.0.1:1", Auth: broker.XAPIKey},
		"nobody":   {BaseURL: "http://user:password-of-base@127.0.0.1:1/v1?secret=hidden-in-the-query", Auth: broker.None},
	}}, func(w http.ResponseWriter, r *http.Request) {
		forwarded++
		switch r.URL.Path {
		case "/v1/messages":
			http.Redirect(w, r, "http://elsewhere.example/"+canary, http.StatusTemporaryRedirect)
		case "/v1/models/odd":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		case "/v1/responses":
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":{"message":"Incorrect API key provided: sk-canar**********e5f6"}}`)
		case "/v1/completions":
			w.Header().Set("Content-Encoding", "gzip")
			gz := gzip.NewWriter(w)
			fmt.Fprint(gz, canary)
			gz.Close()
		case "/v1/chat/completions":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(529)
			fmt.Fprintf(w, `{"error":{"type":"overloaded_error","message":"busy with %s and %s and sk-c***f6"}}`, canary, canary[5:15])
		}
	})
	socket, _ := h.start(broker.Agent{ID: "a"})
	tests := []struct {
		name, method, path string
		status             int
		kind, text         string
		upstream           bool // it is asked
	}{
		{"an unknown provider", "POST", "/none/chat/completions", 404, "unknown_provider", `no provider "none"`, false},
		{"no provider", "POST", "/", 404, "unknown_provider", `no provider ""`, false},
		{"a missing key", "POST", "/keyless/chat/completions", 424, "missing_key", "set the environment variable KEYLESS_KEY", false},
		{"a key without a name", "POST", "/nameless/v1/messages", 424, "missing_key", "api_key_env", false},
		{"files of the account", "POST", "/p/files", 404, "unknown_endpoint", "only POST chat/completions", false},
		{"another method", "DELETE", "/p/models/m", 404, "unknown_endpoint", "", false},
		{"a way out", "POST", "/p/../chat/completions", 404, "unknown_endpoint", "", false},
		{"a way out of the models", "GET", "/p/models/../files", 404, "unknown_endpoint", "", false},
		{"an escaped way out", "GET", "/p/models/%2e%2e/files", 404, "unknown_endpoint", "", false},
		{"an escaped slash", "GET", "/p/models/..%2ffiles", 404, "unknown_endpoint", "", false},
		{"an empty segment", "GET", "/p/models//m", 404, "unknown_endpoint", "", false},
		{"another authority", "POST", "//evil.example/chat/completions", 404, "unknown_provider", "", false},
		{"nobody there", "POST", "/nobody/chat/completions", 502, "upstream_unreachable", "connection refused", false},
		{"a redirect", "POST", "/p/messages", 502, "upstream_error", "redirect (307)", true},
		{"a status that is none", "GET", "/p/models/odd", 502, "upstream_error", "status 99,", true},
		{"a key that is refused", "POST", "/p/responses", 401, "authentication_error", "provider p refused the key", true},
		{"an encoding that hides", "POST", "/p/completions", 502, "upstream_error", "encoding", true},
		{"a service's error", "POST", "/p/chat/completions", 529, "overloaded_error", "busy with [key] and [key] and [key]", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forwarded = 0
			res, answer := h.do(socket, tt.method, tt.path, "{}", nil)
			kind, text := gjson.Get(answer, "error.type").Str, gjson.Get(answer, "error.message").Str
			if res.StatusCode != tt.status || kind != tt.kind || !strings.Contains(text, tt.text) {
				t.Errorf("got %d %s, want %d %s …%s…", res.StatusCode, answer, tt.status, tt.kind, tt.text)
			}
			for _, secret := range []string{canary, canary[5:15], "e5f6", "password-of-base", "hidden-in-the-query"} {
				if strings.Contains(answer+fmt.Sprint(res.Header), secret) {
					t.Errorf("it shows %s: %s", secret, answer)
				}
			}
			if (forwarded > 0) != tt.upstream {
				t.Errorf("the service was asked %d times", forwarded)
			}
		})
	}
	if u := h.usage("a"); u.Tokens() != 0 {
		t.Errorf("refusals cost %+v", u)
	}
}

// A target with an authority is not a path, whatever it names.
func TestAbsoluteForm(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(http.ResponseWriter, *http.Request) { t.Error("it was forwarded") })
	socket, _ := h.start(broker.Agent{ID: "a"})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST http://evil.example/p/chat/completions HTTP/1.1\r\nHost: broker\r\nContent-Length: 0\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("got %s, want 400", res.Status)
	}
}

// A body over the limit is refused, declared or not, also where only a part of
// it was read.
func TestBodyLimit(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	socket, _ := h.start(broker.Agent{ID: "a"})
	spaces := strings.Repeat(" ", 32<<20-2)
	for name, body := range map[string]io.Reader{
		"declared": strings.NewReader("{}" + spaces + " "),
		"chunked":  struct{ io.Reader }{strings.NewReader("{}" + spaces + " ")},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := client(socket).Post("http://broker/p/chat/completions", "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != 413 {
				t.Errorf("got %s, want 413", res.Status)
			}
		})
	}
	res, err := client(socket).Post("http://broker/p/chat/completions", "application/json", strings.NewReader("{}"+spaces))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("32 MiB: got %s", res.Status)
	}
}

// An answer passes as it comes: the service says its next word only once the
// child has heard the last one.
func TestStreamWithoutDelay(t *testing.T) {
	heard := make(chan struct{})
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-heard:
			case <-r.Context().Done():
				return
			}
		}
	})
	socket, _ := h.start(broker.Agent{ID: "a"})
	res, err := client(socket).Post("http://broker/p/chat/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) || !lines.Scan() {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
		heard <- struct{}{}
	}
	if lines.Scan() {
		t.Errorf("more: %q", lines.Text())
	}
}

// A key that a service says in an answer is overwritten, also where it comes in
// pieces; the length stays.
func TestAnswerWithKey(t *testing.T) {
	text := "data: {\"echo\":\"" + canary + "\",\"twice\":\"" + canary + canary + "\"}\n\n"
	for _, n := range []int{1, 7, 20, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for rest := text; len(rest) > 0; {
					piece := rest[:min(n, len(rest))]
					rest = rest[len(piece):]
					fmt.Fprint(w, piece)
					_ = http.NewResponseController(w).Flush()
				}
			})
			socket, _ := h.start(broker.Agent{ID: "a"})
			_, answer := h.ask(socket, "{}")
			if want := strings.ReplaceAll(text, canary, strings.Repeat("*", len(canary))); answer != want {
				t.Errorf("got %s, want %s", answer, want)
			}
		})
	}
}
