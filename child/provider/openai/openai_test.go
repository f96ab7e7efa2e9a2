package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
	"nexus.internal/child/tool"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/tokencount"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = httpapitest.Secret

// acme makes a provider that talks to the service.
func acme(t *testing.T, s *httpapitest.Service, change func(*openai.Options)) provider.Provider {
	t.Helper()
	o := openai.Options{
		Name: "acme", BaseURL: s.URL + "/v1", AuthMethod: httpapi.Bearer, APIKey: secret, HTTPClient: s.Client(), RetryBackoff: time.Nanosecond,
	}
	if change != nil {
		change(&o)
	}
	p, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	return fixtures.Read(t, "providers/openai/"+name)
}

var hello = provider.Request{
	Model:    "gpt-4.1-mini",
	Messages: []protocol.Message{{Role: protocol.RoleUser, Content: "hello"}},
}

func model(name string) *string { return &name }

var (
	textDeltas = []provider.Delta{
		provider.Text{Text: "Grüße"},
		provider.Text{Text: ", Alice"},
		provider.Text{Text: " 👋\n\"quoted\""},
		provider.Stop{Reason: provider.FinishStop, Usage: protocol.TurnUsage{
			InputTokens: 19, OutputTokens: 10, CacheReadInputTokens: 12, Model: model("gpt-4.1-mini-2025-04-14"),
		}},
	}
	toolDeltas = []provider.Delta{
		provider.CallStart{ID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Name: "read_file"},
		provider.CallInput{ID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Fragment: `{"pa`},
		provider.CallInput{ID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Fragment: `th":"größe.txt"}`},
		provider.CallStart{ID: "call_7Kr3cHkVbqXbVJfLqGQbK1hA", Name: "sleep"},
		provider.CallInput{ID: "call_7Kr3cHkVbqXbVJfLqGQbK1hA", Fragment: `{"seconds":`},
		provider.CallInput{ID: "call_7Kr3cHkVbqXbVJfLqGQbK1hA", Fragment: `0.5}`},
		provider.Call{ToolCall: protocol.ToolCall{
			ID: "call_DdmO9pD3xa9XTPNJ32zg2hcA", Name: "read_file", Input: jsontext.Value(`{"path":"größe.txt"}`),
		}},
		provider.Call{ToolCall: protocol.ToolCall{
			ID: "call_7Kr3cHkVbqXbVJfLqGQbK1hA", Name: "sleep", Input: jsontext.Value(`{"seconds":0.5}`),
		}},
		provider.Stop{Reason: provider.FinishToolCalls, Usage: protocol.TurnUsage{
			InputTokens: 82, OutputTokens: 37, CacheReadInputTokens: 12, Model: model("gpt-4.1-mini-2025-04-14"),
		}},
	}
	reasoningDeltas = []provider.Delta{
		provider.Thinking{Text: "The user "},
		provider.Thinking{Text: "greets."},
		provider.Text{Text: "Hello"},
		provider.Text{Text: "!"},
		reasonedWith("reasoning_content", 16, 6, ""),
		provider.Stop{Reason: provider.FinishLength, Usage: protocol.TurnUsage{
			InputTokens: 5, OutputTokens: 7, Model: model("qwen3-8b"),
		}},
	}
)

func TestStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []provider.Delta
	}{
		{"text.sse", textDeltas},
		{"tools.sse", toolDeltas},
		{"reasoning.sse", reasoningDeltas},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := recorded(t, tt.name)
			got, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream(whole)), nil), hello)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("whole: -want +got\n%s", diff)
			}
			got, err = httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream(httpapitest.ByteByByte(whole)...)), nil), hello)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("byte by byte: -want +got\n%s", diff)
			}
		})
	}
}

// An answer that breaks off is an error wherever that happens, until its reason
// to finish was read; and what was passed on is the beginning of the answer.
func TestCutOff(t *testing.T) {
	whole := recorded(t, "text.sse")
	finish := bytes.Index(whole, []byte(`"finish_reason":"stop"`))
	finish += bytes.Index(whole[finish:], []byte("\n\n")) + 2
	for cut := 0; cut < len(whole); cut += 7 {
		s := httpapitest.Serve(t, httpapitest.Stream(whole[:cut]))
		got, err := httpapitest.Collect(t.Context(), acme(t, s, func(o *openai.Options) { o.MaxAttempts = 1 }), hello)
		switch {
		case cut < finish && err == nil:
			t.Errorf("cut at %d: no error, deltas %v", cut, got)
		case cut < finish && !strings.Contains(err.Error(), "broke off"):
			t.Errorf("cut at %d: error %q", cut, err)
		case cut >= finish && err != nil:
			t.Errorf("cut at %d, after the reason to finish: %v", cut, err)
		}
		if n := len(got); cut < finish && n > 0 && cmp.Diff(textDeltas[:n], got) != "" {
			t.Errorf("cut at %d: deltas %v are not the beginning", cut, got)
		}
	}
}

// What a service does not count is estimated, by the bytes of the request and of what the
// model said; for an answer that breaks off, too, each time that the service began one.
func TestUncounted(t *testing.T) {
	const said = `data: {"choices":[{"index":0,"delta":{"content":"eight by"}}]}` + "\n\n"
	const end = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	for _, tt := range []struct {
		name       string
		answers    []http.HandlerFunc
		stop, lost uint64 // tokens of answers; each of them has a request
		lostTries  uint64
	}{
		{"whole", []http.HandlerFunc{httpapitest.Stream([]byte(said + end))}, 2, 0, 0},
		{"counts of nothing", []http.HandlerFunc{httpapitest.Stream([]byte(said + `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}` + "\n\n" + end))}, 2, 0, 0},
		{"broken off", []http.HandlerFunc{httpapitest.Stream([]byte(said))}, 0, 2, 1},
		{"refused", []http.HandlerFunc{httpapitest.Status(400, "{}")}, 0, 0, 0},
		{"the second time", []http.HandlerFunc{httpapitest.Stream(), httpapitest.Stream([]byte(said + end))}, 2, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, tt.answers...)
			r := hello
			var lost, stop protocol.TurnUsage
			r.Lost = &lost
			deltas, _ := httpapitest.Collect(t.Context(), acme(t, s, nil), r)
			if len(deltas) > 0 {
				if d, ok := deltas[len(deltas)-1].(provider.Stop); ok {
					stop = d.Usage
				}
			}
			_, body := s.Request(0)
			var asked tokencount.Request
			_, _ = asked.Write(body)
			want := protocol.TurnUsage{InputTokens: tt.lostTries * asked.Tokens(), OutputTokens: tt.lost, Estimated: tt.lostTries > 0}
			if lost != want {
				t.Errorf("lost %+v, want %+v", lost, want)
			}
			want = protocol.TurnUsage{OutputTokens: tt.stop, Estimated: tt.stop > 0}
			if tt.stop > 0 {
				want.InputTokens = asked.Tokens()
			}
			if stop != want {
				t.Errorf("stopped with %+v, want %+v", stop, want)
			}
		})
	}
}

// A finish_reason that says that the service could not go on is no end of an answer; any
// other that is not known is one.
func TestFinishReasonsOfFailures(t *testing.T) {
	whole := recorded(t, "text.sse")
	for reason, want := range map[string]string{"error": "broke off", "abort": "broke off", "insufficient_system_resource": "broke off", "a_new_reason": ""} {
		s := httpapitest.Serve(t, httpapitest.Stream(bytes.Replace(whole, []byte(`"finish_reason":"stop"`), []byte(`"finish_reason":"`+reason+`"`), 1)))
		_, err := httpapitest.Collect(t.Context(), acme(t, s, func(o *openai.Options) { o.MaxAttempts = 1 }), hello)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

func TestErrors(t *testing.T) {
	const limited = `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	good := httpapitest.Stream(recorded(t, "text.sse"))
	broken := func(name string) http.HandlerFunc { return httpapitest.Stream(recorded(t, name)) }
	for _, tt := range []struct {
		name    string
		answers []http.HandlerFunc
		retries int    // told before the answer
		err     string // the end of the error; "" for the whole answer
	}{
		{"limited, then well", []http.HandlerFunc{httpapitest.Status(429, limited, "Retry-After", "0"), good}, 1, ""},
		{"limited by a date that has passed", []http.HandlerFunc{
			httpapitest.Status(429, limited, "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"), good,
		}, 1, ""},
		{"faults, then well", []http.HandlerFunc{
			httpapitest.Status(500, "{}"), httpapitest.Status(502, "<html>Bad Gateway</html>"), httpapitest.Status(503, `{"error":"warming up"}`), good,
		}, 3, ""},
		{"four faults", []http.HandlerFunc{
			httpapitest.Status(500, ""), httpapitest.Status(500, ""), httpapitest.Status(500, ""), httpapitest.Status(529, `{"error":{"message":"Overloaded"}}`),
		}, 3, "provider acme: 529: Overloaded"},
		{
			"a long wait asked for",
			[]http.HandlerFunc{httpapitest.Status(429, limited, "Retry-After", "61")},
			0, "provider acme: 429 Too Many Requests: Rate limit reached for requests",
		},
		{
			"no money",
			[]http.HandlerFunc{httpapitest.Status(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`)},
			0, "provider acme: 429 Too Many Requests: You exceeded your current quota",
		},
		{
			"wrong key",
			[]http.HandlerFunc{httpapitest.Status(401, `{"error":{"message":"Incorrect API key provided: `+secret+`","code":"invalid_api_key"}}`)},
			0, "provider acme: 401 Unauthorized: the service refused the API key",
		},
		{
			"key in other words",
			[]http.HandlerFunc{httpapitest.Status(403, `{"error":{"message":"key `+secret+` is blocked"}}`)},
			0, "provider acme: 403 Forbidden: key [key] is blocked",
		},
		{
			"part of the key",
			[]http.HandlerFunc{httpapitest.Status(400, `{"error":{"message":"bad key: `+secret[:20]+`, see https://a:b@c.example/d?e=f","code":"`+secret[3:15]+`"}}`)},
			0, "provider acme: 400 Bad Request: bad key: [key], see https://c.example/d",
		},
		{
			"masked key",
			[]http.HandlerFunc{httpapitest.Status(400, `{"error":{"message":"Incorrect key sk-p************cret. Not ****5678 or \"...cret\""}}`)},
			0, "provider acme: 400 Bad Request: Incorrect key [key] Not ****5678 or \"[key]\"",
		},
		{
			"unknown model",
			[]http.HandlerFunc{httpapitest.Status(404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`)},
			0, "provider acme: 404 Not Found: The model does not exist",
		},
		{"redirect", []http.HandlerFunc{httpapitest.Status(307, "", "Location", "/elsewhere")}, 0, "provider acme: 307 Temporary Redirect"},
		{
			"an error with status 200",
			[]http.HandlerFunc{httpapitest.Status(200, `{"error":{"message":"no such deployment"}}`)},
			0, "provider acme: 200 OK: no such deployment",
		},
		{
			"no stream",
			[]http.HandlerFunc{httpapitest.Status(200, `{"choices":[]}`)},
			0, "provider acme: the service sent a malformed event: want a stream, have application/json",
		},
		{"error event first", []http.HandlerFunc{broken("error-first.sse"), good}, 1, ""},
		{"error event later", []http.HandlerFunc{broken("error-later.sse")}, 0, "the service reported an error: Overloaded"},
		{"malformed event", []http.HandlerFunc{broken("malformed.sse")}, 0, "unexpected end of JSON input"},
		{"event of another shape", []http.HandlerFunc{httpapitest.Stream([]byte("data: [1]\n\n"))}, 0, "the service sent a malformed event: it is not an object"},
		{"choices of another shape", []http.HandlerFunc{httpapitest.Stream([]byte("data: {\"choices\":7}\n\n"))}, 0, `member "choices" is not an array`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, tt.answers...)
			// The client of its own is the one that follows no redirect.
			got, err := httpapitest.Collect(t.Context(), acme(t, s, func(o *openai.Options) { o.HTTPClient = nil }), hello)
			retries := 0
			for _, delta := range got {
				if r, ok := delta.(provider.Retry); ok {
					retries++
					if strings.Contains(r.Reason, secret) {
						t.Errorf("the key is in %q", r.Reason)
					}
				}
			}
			if retries != tt.retries || s.Asked() != len(tt.answers) {
				t.Errorf("told of %d retries in %d requests, want %d in %d", retries, s.Asked(), tt.retries, len(tt.answers))
			}
			if tt.err == "" {
				if diff := cmp.Diff(textDeltas, got[retries:]); err != nil || diff != "" {
					t.Errorf("error %v, -want +got\n%s", err, diff)
				}
				return
			}
			if err == nil || !strings.HasSuffix(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "provider acme: ") {
				t.Fatalf("error %v, want one that ends in %q", err, tt.err)
			}
			if all := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(all, secret) {
				t.Errorf("the key is in %s", all)
			}
		})
	}
}

// The query of base_url may hold a key, and so may its user; a connection that
// fails prints the URL.
func TestURLStaysSecret(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	for _, tt := range []struct {
		name, base string
		client     *http.Client
		want       string
	}{
		{"refused", "http://user:pa55word@" + address + "/v1?key=" + secret + "&v=1", nil, `Post "http://` + address + `/v1/chat/completions": dial tcp`},
		{"echoed", "http://user:pa55word@" + address + "/v1?key=" + secret, &http.Client{Transport: failing("bad " + secret[5:] + " of user:pa55word")}, "bad [key] of user:[key]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := openai.New(openai.Options{
				Name: "acme", BaseURL: tt.base, AuthMethod: httpapi.None, HTTPClient: tt.client, MaxAttempts: 2, RetryBackoff: time.Nanosecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := httpapitest.Collect(t.Context(), p, hello)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want …%s…", err, tt.want)
			}
			_, listed := p.Models(t.Context())
			for _, shown := range []string{secret[5:], "user@", "user:p", "pa55word", "key="} {
				if all := fmt.Sprintf("%v %#v %v %#v %v", err, err, listed, listed, got); strings.Contains(all, shown) {
					t.Errorf("%s is in %s", shown, all)
				}
			}
		})
	}
}

// failing is a transport that fails with these words.
type failing string

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New(string(f)) }

func TestContextWindow(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"Your messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
		`{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}`,
		`{"error":{"code":400,"message":"the request exceeds the available context size. try increasing it ` + secret + `","type":"invalid_request_error"}}`,
	} {
		_, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Status(400, body)), nil), hello)
		if !errors.Is(err, provider.ErrContextWindow) {
			t.Errorf("%s\ngave %v, want ErrContextWindow", body, err)
		}
	}
}

// A model's call whose input is not JSON reaches the registry as a JSON string,
// and goes back to the service as the model wrote it.
func TestBadInput(t *testing.T) {
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "bad-input.sse")), httpapitest.Stream(recorded(t, "text.sse")))
	p := acme(t, s, nil)
	got, err := httpapitest.Collect(t.Context(), p, hello)
	if err != nil {
		t.Fatal(err)
	}
	call := got[len(got)-2].(provider.Call).ToolCall
	if want := `"{\"path\":"`; string(call.Input) != want {
		t.Fatalf("input %s, want %s", call.Input, want)
	}
	again := hello
	again.Messages = append(again.Messages, protocol.Message{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{call}})
	if _, err := httpapitest.Collect(t.Context(), p, again); err != nil {
		t.Fatal(err)
	}
	_, body := s.Request(1)
	if want := `"arguments":"{\"path\":"`; !bytes.Contains(body, []byte(want)) {
		t.Errorf("request %s does not hold %s", body, want)
	}
}

// The request as the service sees it, in all its parts.
func TestRequest(t *testing.T) {
	r := provider.Request{
		Model:  "gpt-4.1-mini",
		System: "You are terse.",
		Messages: []protocol.Message{
			{Role: protocol.RoleTool, ToolCallID: "lost", Content: "a result without a call"},
			{Role: protocol.RoleUser, Content: "read größe.txt", TurnID: "1"},
			{Role: protocol.RoleAssistant, Content: "At once.", Thinking: "hm", ToolCalls: []protocol.ToolCall{
				{ID: "call_1", Name: "read_file", Input: jsontext.Value(`{"path":"größe.txt"}`)},
				{ID: "call_2", Name: "read_file", Input: jsontext.Value(`{"path":"b"}`)},
			}},
			{Role: protocol.RoleTool, ToolCallID: "call_1", ToolName: "read_file", Content: "1,80 m"},
			{Role: protocol.RoleAssistant, Interrupted: true},
			{Role: protocol.RoleUser, Content: "go on"},
		},
		Tools: []tool.Spec{{
			Name: "read_file", Description: "Read a file.",
			InputSchema: jsontext.Value(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
		}},
	}
	for _, tt := range []struct {
		name, base     string
		method         httpapi.AuthMethod
		header, value  string
		absent, target string
	}{
		{"bearer", "/v1", httpapi.Bearer, "Authorization", "Bearer " + secret, "Api-Key", "/v1/chat/completions"},
		{
			"azure", "/openai?api-version=2024-10-21", httpapi.APIKey, "Api-Key", secret, "Authorization",
			"/openai/chat/completions?api-version=2024-10-21",
		},
		{"none", "/v1/", httpapi.None, "Api-Key", "", "Authorization", "/v1/chat/completions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OPENAI_API_KEY", "sk-of-somebody-else")
			s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
			p := acme(t, s, func(o *openai.Options) { o.BaseURL, o.AuthMethod = s.URL+tt.base, tt.method })
			if _, err := httpapitest.Collect(t.Context(), p, r); err != nil {
				t.Fatal(err)
			}
			got, body := s.Request(0)
			if got.Header.Get(tt.header) != tt.value || got.Header.Get(tt.absent) != "" {
				t.Errorf("headers %v, want %s: %s and no %s", got.Header, tt.header, tt.value, tt.absent)
			}
			if got.Method != http.MethodPost || got.RequestURI != tt.target {
				t.Errorf("asked %s %s, want POST %s", got.Method, got.RequestURI, tt.target)
			}
			fixtures.Golden(t, "providers/openai/request.json", httpapitest.Pretty(t, body))
		})
	}
}

func TestModels(t *testing.T) {
	configured := []protocol.Model{{ModelID: "b", ModelName: "Bee", ContextWindow: 8000}}
	list := `{"object":"list","data":[{"id":"a","object":"model","created":1,"owned_by":"x","context_length":4096,"name":"Ay"},` +
		`{"id":"b","object":"model","created":1,"owned_by":"x"},{"id":"c","object":"model","created":1,"owned_by":"x","max_model_len":32768}]}`
	for _, tt := range []struct {
		name       string
		answer     http.HandlerFunc
		configured []protocol.Model
		want       []protocol.Model
		err        string
	}{
		{"listed", httpapitest.Status(200, list), configured, []protocol.Model{
			{Provider: "acme", ModelID: "a", ModelName: "Ay", ContextWindow: 4096},
			{Provider: "acme", ModelID: "b", ModelName: "Bee", ContextWindow: 8000},
			{Provider: "acme", ModelID: "c", ModelName: "c", ContextWindow: 32768},
		}, ""},
		{
			"names that nobody could choose", httpapitest.Status(200, `{"data":[{"id":"a","name":"`+strings.Repeat("n", 300)+`"},{"id":"`+strings.Repeat("m", 257)+`"},{"id":"x\n"}]}`),
			nil,
			[]protocol.Model{{Provider: "acme", ModelID: "a", ModelName: strings.Repeat("n", 256)}},
			"",
		},
		{"no list", httpapitest.Status(404, ""), configured, []protocol.Model{
			{Provider: "acme", ModelID: "b", ModelName: "Bee", ContextWindow: 8000},
		}, ""},
		{
			"nothing known", httpapitest.Status(401, `{"error":{"message":"bad key"}}`), nil, nil,
			"list models: provider acme: 401 Unauthorized: the service refused the API key",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := acme(t, httpapitest.Serve(t, tt.answer), func(o *openai.Options) { o.Models = tt.configured })
			got, err := p.Models(t.Context())
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options openai.Options
		want    string
	}{
		{"no key", openai.Options{Name: "acme", BaseURL: "http://h", AuthMethod: httpapi.Bearer}, "provider acme: there is no API key"},
		{"no host", openai.Options{Name: "acme", BaseURL: "api.example.com", APIKey: secret}, "provider acme: base_url is not an http or https URL with a host"},
		{"bad url", openai.Options{Name: "acme", BaseURL: "http://[", APIKey: secret}, "provider acme: base_url is not a URL"},
		{"bad method", openai.Options{Name: "acme", BaseURL: "http://h", APIKey: secret, AuthMethod: "basic"}, `provider acme: auth_method "basic" is not known, want bearer, api-key, x-api-key or none`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := openai.New(tt.options); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzStream: whatever a service sends, an answer ends, with a Stop as its last
// delta or with an error; the input of every whole call is JSON; and what an
// answer is signed with goes back with the message that is made of it.
func FuzzStream(f *testing.F) {
	for _, name := range fixtures.Glob(f, "providers/openai/*.sse") {
		f.Add(fixtures.Read(f, name))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := openai.New(openai.Options{
			BaseURL: "http://h", AuthMethod: httpapi.Bearer, APIKey: secret, MaxAttempts: 1, HTTPClient: &http.Client{Transport: httpapitest.Canned(body)},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := httpapitest.Collect(t.Context(), p, hello)
		stopped := false
		for i, delta := range got {
			switch delta := delta.(type) {
			case provider.Call:
				if !delta.Input.IsValid() {
					t.Errorf("input %q of a call is not JSON", delta.Input)
				}
			case provider.Stop:
				stopped = i == len(got)-1
			}
		}
		if stopped == (err != nil) {
			t.Errorf("stopped %v with error %v", stopped, err)
		}
		m := said(got)
		if len(m.ThinkingSignature) > httpapi.MaxSignature || m.ThinkingSignature != "" && !openai.GivesBack(hello.Model, m) {
			t.Errorf("the signature does not fit %+v", m)
		}
	})
}

// An answer that is no event stream counts as the broker charges it: a web page nothing.
func TestUsageWithoutStream(t *testing.T) {
	long := strings.Repeat("x", 100<<10) // more than is read of an error
	for name, tt := range map[string]struct {
		media, body string
		want        protocol.TurnUsage
	}{
		"HTML":                {"text/html", "<html>hi</html>", protocol.TurnUsage{}},
		"JSON without usage":  {"application/json", `{"content":"hi"}`, protocol.TurnUsage{InputTokens: 32, OutputTokens: 1, Estimated: true}},
		"JSON with usage":     {"application/json", `{"content":"` + long + `","usage":{"prompt_tokens":700,"completion_tokens":30}}`, protocol.TurnUsage{InputTokens: 700, OutputTokens: 30}},
		"an error with usage": {"application/json", `{"error":{"message":"no"},"usage":{"prompt_tokens":700,"completion_tokens":30}}`, protocol.TurnUsage{InputTokens: 700, OutputTokens: 30}},
	} {
		s := httpapitest.Serve(t, httpapitest.Status(200, tt.body, "Content-Type", tt.media))
		r := hello
		var lost protocol.TurnUsage
		r.Lost = &lost
		if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), r); err == nil || lost != tt.want {
			t.Errorf("%s: lost %+v, %v; want %+v", name, lost, err, tt.want)
		}
	}
}
