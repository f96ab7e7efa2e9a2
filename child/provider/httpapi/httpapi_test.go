package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
	"nexus.internal/protocol/eventstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain asks the way a provider does, and takes the data of one event for the
// answer.
func plain() httpapi.AttemptFunc {
	return func(ctx context.Context, t *httpapi.Attempt, _ provider.Request) error {
		var said string
		err := t.Stream(ctx, "/ask", struct{}{}, func(e eventstream.Event) error {
			said = string(e.Data)
			return nil
		})
		if err := t.Outcome(ctx, err, said != ""); err != nil {
			return err
		}
		t.Emit(provider.Text{Text: said})
		return nil
	}
}

func service(t *testing.T, o httpapi.Options) *httpapi.Service {
	t.Helper()
	if o.Name = "acme"; o.BaseURL == "" {
		o.BaseURL = "http://127.0.0.1:1"
	}
	if o.AuthMethod == "" {
		o.AuthMethod = httpapi.Bearer
	}
	s, err := httpapi.New(o, httpapi.Vendor{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer reads an answer: its texts, the reasons of its retries, and its end.
func answer(ctx context.Context, s *httpapi.Service) (said, retries []string, err error) {
	for delta, err := range s.Answer(ctx, provider.Request{}, plain()) {
		switch delta := delta.(type) {
		case provider.Text:
			said = append(said, delta.Text)
		case provider.Retry:
			retries = append(retries, delta.Reason)
		}
		if err != nil {
			return said, retries, err
		}
	}
	return said, retries, nil
}

// A broker behind a unix socket needs no key; its client dials whatever it likes.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	broker := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/v1/ask" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
		httpapitest.Stream([]byte("data: hello\n\n"))(w, r)
	})}}
	broker.Start()
	defer broker.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	s := service(t, httpapi.Options{BaseURL: "http://broker/v1", AuthMethod: httpapi.None, HTTPClient: &http.Client{Transport: transport}})
	said, retries, err := answer(t.Context(), s)
	if diff := cmp.Diff([]string{"hello"}, said); err != nil || retries != nil || diff != "" {
		t.Errorf("error %v, retries %v, -want +got\n%s", err, retries, diff)
	}
}

// What the broker refuses is said in its words alone: at once where the budget
// is spent, and after the tries where the rate is too high. A service's refusal
// in the same form is a service's, and so is one with the broker's header where
// there is no broker.
func TestBroker(t *testing.T) {
	const spent = `{"error":{"type":"budget_exceeded","message":"agent a1 has used 1,200 of its 1,000 tokens"}}`
	const fast = `{"error":{"type":"rate_limit_exceeded","message":"agent a1 may make 10 requests a minute; try again in 0 s"}}`
	const denied = `{"error":{"type":"authentication_error","message":"provider acme refused the key that the server has for it"}}`
	own := []string{protocol.BrokerRefusal, "1", "Retry-After", "0"}
	limited := httpapitest.Status(429, fast, own...)
	for _, tt := range []struct {
		name        string
		broker      bool
		answers     []http.HandlerFunc
		retries     int
		want, brief string
	}{
		{
			"budget", true,
			[]http.HandlerFunc{httpapitest.Status(402, spent, own...)},
			0,
			"agent a1 has used 1,200 of its 1,000 tokens", "the broker refused the request: budget_exceeded",
		},
		{
			"rate", true,
			[]http.HandlerFunc{limited, limited, limited, limited},
			3,
			"agent a1 may make 10 requests a minute; try again in 0 s", "the broker refused the request: rate_limit_exceeded",
		},
		{
			"key", true,
			[]http.HandlerFunc{httpapitest.Status(401, denied, own...)},
			0,
			"provider acme refused the key that the server has for it", "the broker refused the request: authentication_error",
		},
		{
			"a service behind the broker", true,
			[]http.HandlerFunc{httpapitest.Status(402, spent)},
			0,
			"provider acme: 402 Payment Required: agent a1 has used 1,200 of its 1,000 tokens", "provider acme: 402 Payment Required",
		},
		{
			"a service with a time to wait", true,
			[]http.HandlerFunc{httpapitest.Status(429, spent, "Retry-After", "0")},
			0,
			"provider acme: 429 Too Many Requests: agent a1 has used 1,200 of its 1,000 tokens", "provider acme: 429 Too Many Requests",
		},
		{
			"a service without a broker", false,
			[]http.HandlerFunc{httpapitest.Status(402, spent, own...)},
			0,
			"provider acme: 402 Payment Required: agent a1 has used 1,200 of its 1,000 tokens", "provider acme: 402 Payment Required",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httpapitest.Serve(t, tt.answers...)
			said, retries, err := answer(t.Context(), service(t, httpapi.Options{BaseURL: server.URL, AuthMethod: httpapi.None, Broker: tt.broker}))
			if err == nil || err.Error() != tt.want || len(retries) != tt.retries || said != nil {
				t.Fatalf("said %v, retries %q, error %v, want %s", said, retries, err, tt.want)
			}
			if brief := provider.Brief(err); brief != tt.brief {
				t.Errorf("for a log %q, want %q", brief, tt.brief)
			}
			if errors.Is(err, provider.ErrContextWindow) {
				t.Errorf("a budget of tokens was taken for the context window: %v", err)
			}
		})
	}
}

// A client of somebody's own follows no redirect either: the key would go along.
func TestRedirect(t *testing.T) {
	server := httpapitest.Serve(t, httpapitest.Status(307, "", "Location", "/elsewhere"))
	_, _, err := answer(t.Context(), service(t, httpapi.Options{BaseURL: server.URL, APIKey: httpapitest.Secret, HTTPClient: &http.Client{}}))
	if err == nil || err.Error() != "provider acme: 307 Temporary Redirect" || server.Asked() != 1 {
		t.Errorf("asked %d times, error %v", server.Asked(), err)
	}
}

// The waits between tries, in the time of the bubble: as long as the service
// wants, else doubling from the backoff, less up to a quarter; and an abort ends
// one at once.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := failing{
			{429, http.Header{"Retry-After": {"7"}}},
			{503, http.Header{"Retry-After-Ms": {"250"}}},
			{500, nil},
		}
		s := service(t, httpapi.Options{APIKey: httpapitest.Secret, RetryBackoff: time.Second, HTTPClient: &http.Client{Transport: &answers}})
		var waits []time.Duration
		last := time.Now()
		ctx, abort := context.WithCancel(t.Context())
		defer abort()
		for delta, err := range s.Answer(ctx, provider.Request{}, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
			waits = append(waits, time.Since(last))
			last = time.Now()
			if len(waits) == 4 {
				abort()
			}
			return plain()(ctx, t, r)
		}) {
			if err != nil && !errors.Is(err, context.Canceled) || err == nil && !strings.Contains(delta.(provider.Retry).Reason, "of 4 in ") {
				t.Errorf("delta %v, error %v", delta, err)
			}
		}
		if len(waits) != 4 || waits[1] != 7*time.Second || waits[2] != 250*time.Millisecond || waits[3] > 4*time.Second || waits[3] < 3*time.Second {
			t.Errorf("waits %v", waits)
		}
	})
}

// Only the service's silence counts: a listener may take as long as it likes.
func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, httpapi.Options{APIKey: httpapitest.Secret, IdleTimeout: time.Second, HTTPClient: &http.Client{Transport: httpapitest.Canned("x")}})
		heard := 0
		for _, err := range s.Answer(t.Context(), provider.Request{}, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
			t.Emit(provider.Text{Text: "a"})
			t.Emit(provider.Text{Text: "b"})
			return context.Cause(ctx)
		}) {
			if err != nil {
				t.Fatal(err)
			}
			heard++
			<-time.After(time.Hour)
		}
		if heard != 2 {
			t.Errorf("heard %d pieces", heard)
		}
	})
}

// failing is a transport that refuses each request in its own way.
type failing []struct {
	status int
	header http.Header
}

func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil || len(*f) == 0 {
		return nil, errors.Join(err, errors.New("no more answers"))
	}
	next := (*f)[0]
	*f = (*f)[1:]
	return &http.Response{StatusCode: next.status, Header: next.header, Body: http.NoBody, Request: r}, nil
}

func TestReadError(t *testing.T) {
	for _, tt := range []struct{ name, body, code, message string }{
		{"openai", `{"error":{"message":"m","type":"t","param":null,"code":"c"}}`, "c", "m"},
		{"no code", `{"error":{"message":"m","type":"t","code":null}}`, "t", "m"},
		{"anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, "overloaded_error", "m"},
		{"number", `{"error":{"message":"m","code":503}}`, "503", "m"},
		{"bare", `{"error":"m"}`, "", "m"},
		{"vllm", `{"object":"error","message":"m","type":"t","code":400}`, "400", "m"},
		{
			"openrouter", `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"m\",\"code\":7}}"}}}`,
			"400", "Provider returned error: m",
		},
		{"openrouter, in text", `{"error":{"message":"","code":400,"metadata":{"raw":"upstream  said no"}}}`, "400", "upstream said no"},
		{"openrouter, in another shape", `{"error":{"message":"m","code":400,"metadata":{"raw":{"a":1}}}}`, "400", "m"},
		{"text", "  warming\n up ", "", "warming up"},
		{"page", "<html>Bad Gateway</html>", "", ""},
		{"long", strings.Repeat("é", 400), "", strings.Repeat("é", 248) + "…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if e := httpapi.ReadError([]byte(tt.body)); e.Code != tt.code || e.Message != tt.message || e.Status != 0 || e.RetryAfter >= 0 {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// The words by which services refuse too many tokens, and some like them.
func TestContextWindow(t *testing.T) {
	for _, tt := range []struct {
		status  int
		code    string
		message string
		want    bool
	}{
		{400, "context_length_exceeded", "", true},
		{400, "", "This model's maximum context length is 4096 tokens.", true},
		{400, "invalid_request_error", "prompt is too long: 210402 tokens > 200000 maximum", true},
		{400, "", "the request exceeds the available context size, try increasing it", true},
		{0, "500", "Context size has been exceeded.", true},
		{200, "", "the input length exceeds the context length", true},
		{413, "request_too_large", "Request exceeds the maximum size", true},
		{422, "", "the prompt exceeds the context length", true},
		{500, "", "the request exceeds the available context size, try increasing it", false},
		{503, "", "context length scheduler overloaded", false},
		{502, "context_length_exceeded", "", false},
		{404, "", "no model with a context window of 1M tokens", false},
		{400, "exceed_context_size_error", "", true},
		{400, "", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", true},
		{400, "", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", true},
		{400, "", "The decoder prompt (length 9000) is longer than the maximum model length of 8192.", true},
		{0, "", "the input length exceeds the context length", true},
		{429, "", "This request would exceed the rate limit for the context window of 1M tokens", false},
		{402, "budget_exceeded", "the prompt is too long for the budget", false},
		{400, "invalid_request_error", "max_tokens: 32000 > 8192", false},
	} {
		e := &httpapi.ServiceError{Status: tt.status, Code: tt.code, Message: tt.message}
		if got := errors.Is(e, provider.ErrContextWindow); got != tt.want {
			t.Errorf("%d %s %q: %v, want %v", tt.status, tt.code, tt.message, got, tt.want)
		}
	}
}

// A service that has nothing there says what to look at; its own words come first.
func TestNotFound(t *testing.T) {
	for message, want := range map[string]string{"": "404 Not Found: perhaps base_url in config.json lacks a part, such as /v1", "no such model": "404 Not Found: no such model"} {
		if got := (&httpapi.ServiceError{Status: 404, Message: message}).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Reasoning goes back only where nothing has changed; and an answer of which
// nothing is reasoning has none, whatever a saved session says.
func TestReasoned(t *testing.T) {
	whole := protocol.Message{Role: protocol.RoleAssistant, Thinking: "hm", Content: "yes", ToolCalls: make([]protocol.ToolCall, 1)}
	for _, tt := range []struct {
		name, signature string
		message         protocol.Message
		want            bool
	}{
		{"whole", `{"model":"m","blocks":[{"kind":"t","bytes":2,"opaque":"o"},{"kind":"text","bytes":3},{"kind":"call"}]}`, whole, true},
		{"in pieces", `{"model":"m","blocks":[{"kind":"text","bytes":1},{"kind":"t","bytes":2},{"kind":"text","bytes":2},{"kind":"call"},{"kind":"t"}]}`, whole, true},
		{"another kind", `{"model":"m","blocks":[{"kind":"t","bytes":2},{"kind":"u"},{"kind":"text","bytes":3},{"kind":"call"}]}`, whole, false},
		{"another model", `{"model":"n","blocks":[{"kind":"t","bytes":2},{"kind":"text","bytes":3},{"kind":"call"}]}`, whole, false},
		{"a call more", `{"model":"m","blocks":[{"kind":"t","bytes":2},{"kind":"text","bytes":3}]}`, whole, false},
		{"no reasoning", `{"model":"m","blocks":[{"kind":"text","bytes":3},{"kind":"call"}]}`, protocol.Message{Content: "yes", ToolCalls: whole.ToolCalls}, false},
		{"nothing", `{"model":"m","blocks":[]}`, protocol.Message{}, false},
		{"bytes that overflow", `{"model":"m","blocks":[{"kind":"t","bytes":9223372036854775807},{"kind":"t","bytes":9223372036854775807},{"kind":"t","bytes":4}]}`, protocol.Message{Thinking: "hm"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.message.ThinkingSignature = tt.signature
			if _, got := httpapi.ReusableBlocks(tt.message, "m", "t"); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			tt.message.Interrupted = true
			if _, got := httpapi.ReusableBlocks(tt.message, "m", "t"); got {
				t.Error("an interrupted answer goes back")
			}
		})
	}
}

func TestPictures(t *testing.T) {
	m := protocol.Message{Content: "look", Images: []protocol.Image{{Name: "a", Mime: "image/png"}, {Mime: "image/gif"}, {Name: "c", Mime: "text/html"}, {Name: "d"}}}
	read := asMimes{}
	text, pictures := httpapi.Pictures(provider.Request{Images: read}, m, 12)
	want := "look\n[image c is not shown: it is text/html, and only image/png, image/jpeg, image/gif, image/webp are taken]" +
		"\n[image d is not shown: it is of no known kind, and only image/png, image/jpeg, image/gif, image/webp are taken]"
	if text != want || len(pictures) != 2 || pictures[0] != (httpapi.Picture{Mime: "image/png", Base64: "AAAAAAAAAAAA"}) {
		t.Errorf("got %q and %v", text, pictures)
	}
	if text, pictures = httpapi.Pictures(provider.Request{Images: read}, protocol.Message{Images: m.Images[:1]}, 11); pictures != nil ||
		text != "[image a is not shown: it has 9 bytes, and at most 6 are taken]" {
		t.Errorf("got %q and %v", text, pictures)
	}
	if text, pictures = httpapi.Pictures(provider.Request{}, protocol.Message{Images: m.Images[:1]}, 100); pictures != nil ||
		text != "[image a is not shown: images cannot be read here]" {
		t.Errorf("got %q and %v", text, pictures)
	}
}

func TestFunctionName(t *testing.T) {
	for name, want := range map[string]string{
		"": "unnamed", "read_file": "read_file", "mcp.tool/größe": "mcp_tool_gr__e", strings.Repeat("n", 70): strings.Repeat("n", 64),
	} {
		if got := httpapi.FunctionName(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

// FuzzReadError: whatever a service sends as an error, its words are short and
// readable, and the key is not in what is shown of them.
func FuzzReadError(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"key ` + httpapitest.Secret + ` is bad","code":"` + httpapitest.Secret[4:] + `"}}`))
	f.Add([]byte(`{"error":"` + httpapitest.Secret + `"}`))
	f.Add([]byte("x " + httpapitest.Secret + "\xff"))
	s, err := httpapi.New(httpapi.Options{Name: "acme", BaseURL: "http://h", AuthMethod: httpapi.Bearer, APIKey: httpapitest.Secret}, httpapi.Vendor{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e := httpapi.ReadError(body)
		shown := s.Explain(e).Error()
		if len(e.Message) > 503 || len(e.Code) > 503 || !utf8.ValidString(shown) {
			t.Errorf("shown %q", shown)
		}
		for i := 0; i+8 <= len(httpapitest.Secret); i++ {
			if strings.Contains(shown, httpapitest.Secret[i:i+8]) {
				t.Fatalf("a part of the key is in %q", shown)
			}
		}
	})
}

// A response without an end is given up, whatever it consists of, and not asked
// for again.
func TestAnEndlessResponse(t *testing.T) {
	for _, tt := range []struct{ name, last, want string }{
		{"of comments", "\n", "a response of more than 256 MiB"},
		{"of one line", "x", "it has more than 32 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			s := service(t, httpapi.Options{APIKey: "k", HTTPClient: &http.Client{Transport: trip(func(*http.Request) (*http.Response, error) {
				asked++
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless(tt.last))}, nil
			})}})
			_, _, err := answer(t.Context(), s)
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) || asked != 1 {
				t.Errorf("asked %d times, %v", asked, err)
			}
		})
	}
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endless is a body of zeros, but for the first byte of each piece, which begins a
// comment, and the last.
type endless string

func (e endless) Read(p []byte) (int, error) {
	clear(p)
	p[0] = ':'
	p[len(p)-1] = e[0]
	return len(p), nil
}

// asMimes gives each image as many bytes as its type has letters.
type asMimes struct{}

func (asMimes) Get(i protocol.Image) ([]byte, error) { return make([]byte, len(i.Mime)), nil }

// What an error of a service comes to for the asker, by the service's code, its words, or the
// status of HTTP.
func TestReasonOfAnError(t *testing.T) {
	for _, tt := range []struct {
		status        int
		code, message string
		want          string
	}{
		{429, "", "", protocol.RateLimited},
		{429, "rate_limit_exceeded", "", protocol.RateLimited},
		{0, "429", "", protocol.RateLimited},
		{429, "insufficient_quota", "", protocol.BudgetExceeded},
		{402, "", "Insufficient Balance", protocol.BudgetExceeded},
		{400, "invalid_request_error", "Your credit balance is too low to access the API.", protocol.BudgetExceeded},
		{401, "", "", protocol.Credentials},
		{403, "permission_error", "", protocol.Credentials},
		{424, "missing_key", "", protocol.Credentials},
		{403, "403", "Your input was flagged by moderation", protocol.ContentRefused},
		{400, "content_filter", "", protocol.ContentRefused},
		{500, "", "", protocol.Unreachable},
		{529, "overloaded_error", "", protocol.Unreachable},
		{0, "overloaded_error", "", protocol.Unreachable},
		{408, "", "", protocol.Unreachable},
		{400, "invalid_request_error", "tools: too many", ""},
		{404, "model_not_found", "", ""},
		{413, "request_too_large", "", ""},
	} {
		failed := &httpapi.ServiceError{Status: tt.status, Code: tt.code, Message: tt.message, RetryAfter: -1}
		explained, ok := errors.AsType[*provider.Error](service(t, httpapi.Options{AuthMethod: httpapi.None}).Explain(failed))
		if !ok || explained.Reason != tt.want || explained.RetryAfter != 0 {
			t.Errorf("%d %s %q: %+v, want %q", tt.status, tt.code, tt.message, explained, tt.want)
		}
	}
}
