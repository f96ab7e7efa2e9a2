package anthropic_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/anthropic"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const model = "claude-sonnet-4-5"

var hello = provider.Request{
	Model:    model,
	Messages: []protocol.Message{{Role: protocol.RoleUser, Content: "hello"}},
}

// claude makes a provider that talks to the service.
func claude(t testing.TB, s *httpapitest.Service, change func(*anthropic.Options)) provider.Provider {
	t.Helper()
	o := anthropic.Options{Options: httpapi.Options{
		Name: "claude", BaseURL: s.URL, AuthMethod: httpapi.XAPIKey, APIKey: httpapitest.Secret, RetryBackoff: time.Nanosecond,
	}}
	if change != nil {
		change(&o)
	}
	p, err := anthropic.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	return fixtures.Read(t, "providers/anthropic/"+name)
}

// ask gets the answer that was recorded under that name.
func ask(t *testing.T, name string) ([]provider.Delta, error) {
	t.Helper()
	return httpapitest.Collect(t.Context(), claude(t, httpapitest.Serve(t, httpapitest.Stream(recorded(t, name))), nil), hello)
}

func answered() *string {
	name := "claude-sonnet-4-5-20250929"
	return &name
}

func count(n uint64) *uint64 { return &n }

// stop is the end of an answer without a cache.
func stop(reason provider.FinishReason, input, output uint64) provider.Stop {
	return provider.Stop{Reason: reason, Usage: protocol.TurnUsage{
		InputTokens: input, OutputTokens: output, CacheCreation5m: count(0), CacheCreation1h: count(0), Model: answered(),
	}}
}

var textDeltas = []provider.Delta{
	provider.Text{Text: "Grüße"},
	provider.Text{Text: ", Alice"},
	provider.Text{Text: " 👋\n\"quoted\""},
	provider.Stop{Reason: provider.FinishStop, Usage: protocol.TurnUsage{
		InputTokens: 25 + 12 + 10, OutputTokens: 15, CacheReadInputTokens: 12, CacheCreationInputTokens: 10,
		CacheCreation5m: count(7), CacheCreation1h: count(3), Model: answered(),
	}},
}

// signed is how the answer of thinking.sse was made up.
const signed = `{"model":"claude-sonnet-4-5","blocks":[` +
	`{"kind":"thinking","bytes":21,"opaque":"EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds=="},` +
	`{"kind":"redacted","opaque":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpPkNRj2YfWXGmKDxH4mPnZ5sQ7vB9MN"},` +
	`{"kind":"text","bytes":8},{"kind":"thinking","bytes":13,"opaque":"EswBCk0IBxgCKkBsecond=="},{"kind":"call"}]}`

func TestStream(t *testing.T) {
	call := func(id, name, input string) provider.Call {
		return provider.Call{ToolCall: protocol.ToolCall{ID: id, Name: name, Input: jsontext.Value(input)}}
	}
	const first, second = "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "toolu_01A09q90qw90lq917835lq9"
	for _, tt := range []struct {
		name string
		want []provider.Delta
	}{
		{"text.sse", textDeltas},
		{"tools.sse", []provider.Delta{
			provider.Text{Text: "At once."},
			provider.CallStart{ID: first, Name: "read_file"},
			provider.CallInput{ID: first, Fragment: `{"pa`},
			provider.CallInput{ID: first, Fragment: `th": "größe`},
			provider.CallInput{ID: first, Fragment: `.txt"}`},
			call(first, "read_file", `{"path": "größe.txt"}`),
			provider.CallStart{ID: second, Name: "sleep"},
			provider.CallInput{ID: second, Fragment: `{"seconds":`},
			provider.CallInput{ID: second, Fragment: `0.5}`},
			call(second, "sleep", `{"seconds":0.5}`),
			stop(provider.FinishToolCalls, 472, 89),
		}},
		{"thinking.sse", []provider.Delta{
			provider.Thinking{Text: "Let me "},
			provider.Thinking{Text: "look größer."},
			provider.Text{Text: "I look"},
			provider.Text{Text: "."},
			provider.Text{Text: " "},
			provider.Thinking{Text: "Now the file."},
			provider.CallStart{ID: "toolu_01Lp", Name: "read_file"},
			provider.CallInput{ID: "toolu_01Lp", Fragment: `{"path": "a"}`},
			call("toolu_01Lp", "read_file", `{"path": "a"}`),
			provider.ThinkingSignature{Text: signed},
			stop(provider.FinishToolCalls, 50, 120),
		}},
		{"hidden-thinking.sse", []provider.Delta{
			provider.Text{Text: "Yes."},
			provider.ThinkingSignature{Text: `{"model":"claude-sonnet-4-5","blocks":[{"kind":"thinking","opaque":"EosnCkYICxIM"},{"kind":"text","bytes":4}]}`},
			stop(provider.FinishStop, 50, 40),
		}},
		{"max-tokens.sse", []provider.Delta{
			provider.CallStart{ID: "toolu_cut", Name: "write_file"},
			provider.CallInput{ID: "toolu_cut", Fragment: `{"path": "a", "content": "x`},
			call("toolu_cut", "write_file", `"{\"path\": \"a\", \"content\": \"x"`),
			stop(provider.FinishLength, 30, 64),
		}},
		{"refusal.sse", []provider.Delta{provider.Text{Text: "I can"}, stop(provider.FinishFiltered, 30, 3)}},
		{"pause.sse", []provider.Delta{provider.Text{Text: "So far"}, stop(provider.FinishLength, 30, 3)}},
		{"unknown.sse", []provider.Delta{provider.Text{Text: "Hello"}, stop(provider.FinishStop, 25, 15)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ask(t, tt.name)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("whole: error %v, -want +got\n%s", err, diff)
			}
			s := httpapitest.Serve(t, httpapitest.Stream(httpapitest.ByteByByte(recorded(t, tt.name))...))
			got, err = httpapitest.Collect(t.Context(), claude(t, s, nil), hello)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("byte by byte: error %v, -want +got\n%s", err, diff)
			}
		})
	}
}

// Compatible services leave out the names of events, which are in their data, or
// end lines as HTTP does.
func TestOtherStreams(t *testing.T) {
	whole := recorded(t, "text.sse")
	for _, stream := range [][]byte{
		regexp.MustCompile(`(?m)^event: .*\n`).ReplaceAll(whole, nil),
		bytes.ReplaceAll(whole, []byte("\n"), []byte("\r\n")),
		bytes.ReplaceAll(whole, []byte("\n"), []byte("\r")),
	} {
		got, err := httpapitest.Collect(t.Context(), claude(t, httpapitest.Serve(t, httpapitest.Stream(stream)), nil), hello)
		if diff := cmp.Diff(textDeltas, got); err != nil || diff != "" {
			t.Errorf("%.40q: error %v, -want +got\n%s", stream, err, diff)
		}
	}
}

// An answer that breaks off is an error wherever that happens, until its
// stop_reason was read; and what was passed on is the beginning of the answer.
func TestCutOff(t *testing.T) {
	whole := recorded(t, "text.sse")
	finish := bytes.Index(whole, []byte(`"stop_reason":"end_turn"`))
	finish += bytes.Index(whole[finish:], []byte("\n\n")) + 2
	for cut := 0; cut < len(whole); cut += 11 {
		s := httpapitest.Serve(t, httpapitest.Stream(whole[:cut]))
		got, err := httpapitest.Collect(t.Context(), claude(t, s, func(o *anthropic.Options) { o.MaxAttempts = 1 }), hello)
		switch {
		case cut < finish && (err == nil || !strings.Contains(err.Error(), "broke off")):
			t.Errorf("cut at %d: error %v, deltas %v", cut, err, got)
		case cut >= finish && err != nil:
			t.Errorf("cut at %d, after the stop_reason: %v", cut, err)
		}
		if n := len(got); cut < finish && n > 0 && cmp.Diff(textDeltas[:n], got) != "" {
			t.Errorf("cut at %d: deltas %v are not the beginning", cut, got)
		}
	}
}

// A hostile answer costs what its length makes it cost: blocks that are never closed, and a
// signature in pieces that is too large to go back.
func TestManyOpenBlocks(t *testing.T) {
	const many = 100_000 // with the square of this, the test does not end
	const event = `data: {"type":"content_block_%s","index":%d,%s}` + "\n\n"
	var stream bytes.Buffer
	for i := range many {
		fmt.Fprintf(&stream, event, "start", i, `"content_block":{"type":"text","text":""}`)
	}
	fmt.Fprintf(&stream, event, "start", many, `"content_block":{"type":"thinking","thinking":"Well"}`)
	for range 9 {
		fmt.Fprintf(&stream, event, "delta", many, `"delta":{"type":"signature_delta","signature":"`+strings.Repeat("s", httpapi.MaxSignature/8)+`"}`)
	}
	stream.WriteString(`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}` + "\n\n")
	stream.WriteString(`data: {"type":"message_stop"}` + "\n\n")
	got, err := httpapitest.Collect(t.Context(), claude(t, httpapitest.Serve(t, httpapitest.Stream(stream.Bytes())), nil), hello)
	if err != nil || len(got) != 2 || got[0] != (provider.Thinking{Text: "Well"}) {
		t.Errorf("%d deltas, error %v: %.200v", len(got), err, got)
	}
}

func fault(kind, message string) string {
	return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
}

func TestErrors(t *testing.T) {
	good := httpapitest.Stream(recorded(t, "text.sse"))
	broken := func(name string) http.HandlerFunc { return httpapitest.Stream(recorded(t, name)) }
	event := func(data string) http.HandlerFunc {
		return httpapitest.Stream([]byte("event: content_block_delta\ndata: " + data + "\n\n"))
	}
	for _, tt := range []struct {
		name    string
		answers []http.HandlerFunc
		retries int    // told before the answer
		err     string // the end of the error; "" for the whole answer
	}{
		{"limited, then well", []http.HandlerFunc{
			httpapitest.Status(429, fault("rate_limit_error", "slow down"), "Retry-After", "0"), good,
		}, 1, ""},
		{"overloaded and broken, then well", []http.HandlerFunc{
			httpapitest.Status(529, fault("overloaded_error", "Overloaded")), httpapitest.Status(500, fault("api_error", "oops")),
			httpapitest.Status(503, "<html>"), good,
		}, 3, ""},
		{"overloaded in the stream before it speaks", []http.HandlerFunc{broken("overloaded-first.sse"), good}, 1, ""},
		{"error without the name of its event", []http.HandlerFunc{
			httpapitest.Stream([]byte("event: message\ndata: " + fault("overloaded_error", "Overloaded") + "\n\n")), good,
		}, 1, ""},
		{
			"overloaded after it spoke",
			[]http.HandlerFunc{broken("overloaded-later.sse")},
			0,
			"provider claude: the service reported an error: Overloaded",
		},
		{"overloaded for good", []http.HandlerFunc{
			httpapitest.Status(529, fault("overloaded_error", "a")), httpapitest.Status(529, fault("overloaded_error", "b")),
			httpapitest.Status(529, fault("overloaded_error", "c")), httpapitest.Status(529, fault("overloaded_error", "Overloaded")),
		}, 3, "provider claude: 529: Overloaded"},
		{"told not to come back", []http.HandlerFunc{
			httpapitest.Status(429, fault("rate_limit_error", "not today"), "X-Should-Retry", "false"),
		}, 0, "429 Too Many Requests: not today"},
		{"out of budget", []http.HandlerFunc{
			httpapitest.Status(402, `{"error":{"type":"budget_exceeded","message":"the budget of agent a1 is spent"}}`),
		}, 0, "provider claude: 402 Payment Required: the budget of agent a1 is spent"},
		{"wrong key", []http.HandlerFunc{
			httpapitest.Status(401, fault("authentication_error", "invalid x-api-key "+httpapitest.Secret)),
		}, 0, "provider claude: 401 Unauthorized: the service refused the API key"},
		{"key in other words", []http.HandlerFunc{
			httpapitest.Status(403, fault("permission_error", "key "+httpapitest.Secret[:17]+"... is blocked")),
		}, 0, "provider claude: 403 Forbidden: key [key]... is blocked"},
		{"malformed event", []http.HandlerFunc{broken("malformed.sse")}, 0, "the service sent a malformed event: unexpected end of JSON input"},
		{"event of another shape", []http.HandlerFunc{event(`[1]`)}, 0, "the service sent a malformed event: it is not an object"},
		{"event without a type", []http.HandlerFunc{event(`{"index":0}`)}, 0, "the service sent a malformed event: it has no type"},
		{"delta of no block", []http.HandlerFunc{
			event(`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}`),
		}, 0, "a block goes on that has not begun"},
		{"no stream", []http.HandlerFunc{httpapitest.Status(200, `{"content":[]}`)}, 0, "want a stream, have application/json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, tt.answers...)
			got, err := httpapitest.Collect(t.Context(), claude(t, s, nil), hello)
			retries := 0
			for _, delta := range got {
				if r, ok := delta.(provider.Retry); ok {
					retries++
					if strings.Contains(r.Reason, httpapitest.Secret[:12]) {
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
			if err == nil || !strings.HasSuffix(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "provider claude: ") {
				t.Fatalf("error %v, want one that ends in %q", err, tt.err)
			}
			if all := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(all, httpapitest.Secret[:12]) {
				t.Errorf("the key is in %s", all)
			}
		})
	}
}

func TestContextWindow(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{
		{400, fault("invalid_request_error", "prompt is too long: 210402 tokens > 200000 maximum")},
		{400, fault("invalid_request_error", "input length and `max_tokens` exceed context limit: 190202 + 32000 > 200000")},
		{413, fault("request_too_large", "Request exceeds the maximum size")},
	} {
		_, err := httpapitest.Collect(t.Context(), claude(t, httpapitest.Serve(t, httpapitest.Status(tt.status, tt.body)), nil), hello)
		if !errors.Is(err, provider.ErrContextWindow) {
			t.Errorf("%s\ngave %v, want ErrContextWindow", tt.body, err)
		}
	}
}

// An abort ends a silent service, a stalled stream and a wait between two tries.
func TestAbort(t *testing.T) {
	httpapitest.Abort(t, recorded(t, "text.sse"), 529, func(t *testing.T, s *httpapitest.Service) provider.Provider { return claude(t, s, nil) }, hello)
}

// A stream that says nothing for the idle time is given up; a ping puts that
// off. The time is that of the bubble.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := recorded(t, "text.sse")
		first := bytes.Index(whole, []byte("\n\nevent: content_block_delta")) + 2 // the beginning and a ping
		p, err := anthropic.New(anthropic.Options{Options: httpapi.Options{
			BaseURL: "http://h", AuthMethod: httpapi.XAPIKey, APIKey: httpapitest.Secret, IdleTimeout: time.Minute, MaxAttempts: 1,
			HTTPClient: &http.Client{Transport: slow{pieces: [][]byte{whole[:40], whole[40:first], []byte(": ping\n\n")}, every: 50 * time.Second}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		got, err := httpapitest.Collect(t.Context(), p, hello)
		if err == nil || !strings.HasSuffix(err.Error(), "the service fell silent") || len(got) != 0 {
			t.Errorf("deltas %v, error %v", got, err)
		}
		if after, want := time.Since(begun), 3*50*time.Second+time.Minute; after != want {
			t.Errorf("given up after %v, want %v", after, want)
		}
	})
}

func TestModels(t *testing.T) {
	list := `{"data":[{"type":"model","id":"claude-opus-4-6","display_name":"Claude Opus 4.6","created_at":"2026-02-04T00:00:00Z","max_input_tokens":200000,"max_tokens":128000},` +
		`{"type":"model","id":"claude-x","display_name":"","created_at":"2026-02-04T00:00:00Z"}],"has_more":false,"first_id":"claude-opus-4-6","last_id":"claude-x"}`
	s := httpapitest.Serve(t, httpapitest.Status(200, list), httpapitest.Status(404, fault("not_found_error", "Not found")))
	p := claude(t, s, func(o *anthropic.Options) { o.BaseURL = s.URL + "/v1/" })
	got, err := p.Models(t.Context())
	want := []protocol.Model{
		{Provider: "claude", ModelID: "claude-opus-4-6", ModelName: "Claude Opus 4.6", ContextWindow: 200_000},
		{Provider: "claude", ModelID: "claude-x", ModelName: "claude-x"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, -want +got\n%s", err, diff)
	}
	if r, _ := s.Request(0); r.RequestURI != "/v1/models?limit=1000" || r.Header.Get("X-Api-Key") != httpapitest.Secret {
		t.Errorf("asked %s with %v", r.RequestURI, r.Header)
	}
	if _, err := p.Models(t.Context()); err == nil || err.Error() != "list models: provider claude: 404 Not Found: Not found" {
		t.Errorf("error %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	none := httpapi.Options{Name: "claude", BaseURL: "http://h", AuthMethod: httpapi.XAPIKey}
	key := none
	key.APIKey = httpapitest.Secret
	for _, tt := range []struct {
		name    string
		options anthropic.Options
		want    string
	}{
		{"no key", anthropic.Options{Options: none}, "provider claude: there is no API key"},
		{"bad way to think", anthropic.Options{Options: key, Thinking: "hard"}, `provider claude: thinking "hard" is not known, want adaptive, enabled or disabled`},
		{
			"too little to think",
			anthropic.Options{Options: key, Thinking: anthropic.ThinkingEnabled, ThinkingTokens: 1000},
			"provider claude: 1000 tokens of thinking are not between 1024 and the 32000 of an answer",
		},
		{
			"too much to think",
			anthropic.Options{Options: key, Thinking: anthropic.ThinkingEnabled, MaxTokens: 4000},
			"provider claude: 8000 tokens of thinking are not between 1024 and the 4000 of an answer",
		},
		{"no answer", anthropic.Options{Options: key, MaxTokens: -1}, "provider claude: an answer cannot have -1 tokens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := anthropic.New(tt.options); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// An answer that is no event stream counts as the broker charges it: a web page nothing.
func TestUsageWithoutStream(t *testing.T) {
	long := strings.Repeat("x", 100<<10) // more than is read of an error
	for name, tt := range map[string]struct {
		media, body string
		want        protocol.TurnUsage
	}{
		"HTML":                {"text/html", "<html>hi</html>", protocol.TurnUsage{}},
		"JSON without usage":  {"application/json", `{"content":"hi"}`, protocol.TurnUsage{InputTokens: 43, OutputTokens: 1, Estimated: true}},
		"JSON with usage":     {"application/json", `{"content":"` + long + `","usage":{"input_tokens":700,"output_tokens":30}}`, protocol.TurnUsage{InputTokens: 700, OutputTokens: 30}},
		"an error with usage": {"application/json", `{"error":{"message":"no"},"usage":{"input_tokens":700,"output_tokens":30}}`, protocol.TurnUsage{InputTokens: 700, OutputTokens: 30}},
	} {
		s := httpapitest.Serve(t, httpapitest.Status(200, tt.body, "Content-Type", tt.media))
		r := hello
		var lost protocol.TurnUsage
		r.Lost = &lost
		if _, err := httpapitest.Collect(t.Context(), claude(t, s, nil), r); err == nil || lost != tt.want {
			t.Errorf("%s: lost %+v, %v; want %+v", name, lost, err, tt.want)
		}
	}
}
