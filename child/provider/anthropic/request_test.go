package anthropic_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/anthropic"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/tool"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// slow is a transport whose answers come in pieces, with the same wait before
// each, and then no more.
type slow struct {
	pieces [][]byte
	every  time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := httpapitest.Canned(nil).RoundTrip(r)
	read, write := io.Pipe()
	response.Body = read
	go func() { // ends with the request
		for _, piece := range s.pieces {
			timer := time.NewTimer(s.every)
			select {
			case <-timer.C:
				_, _ = write.Write(piece)
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
		_ = write.CloseWithError(r.Context().Err())
	}()
	return response, err
}

// images are those whose digest is "ok".
type images struct{}

func (images) Get(i protocol.Image) ([]byte, error) {
	if i.SHA256 != "ok" {
		return nil, errors.New("it is gone")
	}
	return []byte("\x89PNG " + i.Name), nil
}

// everything is a conversation with all there can be in one.
var everything = provider.Request{
	Model:  model,
	System: "You are terse.",
	Images: images{},
	Messages: []protocol.Message{
		{Role: protocol.RoleSystem, Content: "Earlier instructions."},
		{Role: protocol.RoleAssistant, Content: "an answer whose question was cut off"},
		{Role: protocol.RoleTool, ToolCallID: "lost", Content: "a result without a call"},
		{Role: protocol.RoleUser, Content: "read größe.txt", Images: []protocol.Image{
			{Name: "a.png", Mime: "image/png", SHA256: "ok"},
			{Name: "b.png", Mime: "image/png"},
			{Name: "c.tiff", Mime: "image/tiff", SHA256: "ok"},
		}},
		{Role: protocol.RoleAssistant, Content: "At once.", Thinking: "hm", ToolCalls: []protocol.ToolCall{
			{ID: "functions.read:0", Name: "read_file", Input: jsontext.Value(`{"path":"größe.txt"}`)},
			{ID: "call_2", Name: "read file", Input: jsontext.Value(`"{\"path\":"`)},
			{ID: "call_3", Name: "", Input: jsontext.Value(`{}`)},
		}},
		{Role: protocol.RoleTool, ToolCallID: "call_2", Content: "the input is not JSON", IsError: true},
		{Role: protocol.RoleTool, ToolCallID: "functions.read:0", Content: "1,80 m", Images: []protocol.Image{{Name: "r.png", Mime: "image/png", SHA256: "ok"}}},
		{Role: protocol.RoleAssistant, Interrupted: true},
		{Role: protocol.RoleUser, Content: "go on"},
		{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{{ID: "call_2", Name: "sleep", Input: jsontext.Value(`{}`)}}},
		{Role: protocol.RoleTool, ToolCallID: "call_2", Content: " \n"},
		{Role: protocol.RoleUser, Content: ""},
	},
	Tools: []tool.Spec{
		{Name: "read_file", Description: "Read a file.", InputSchema: jsontext.Value(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)},
		{Name: "sleep", Description: "Wait.", InputSchema: jsontext.Value(`{}`)},
	},
}

// The request as the service sees it, in all its parts.
func TestRequest(t *testing.T) {
	for _, tt := range []struct {
		name, base, target string
		method             httpapi.AuthMethod
		header, value      string
	}{
		{"the vendor's", "", "/v1/messages", httpapi.XAPIKey, "X-Api-Key", httpapitest.Secret},
		{"bearer, with a version and a query", "/anthropic/v1?beta=true", "/anthropic/v1/messages?beta=true", httpapi.Bearer, "Authorization", "Bearer " + httpapitest.Secret},
		{"no key", "/", "/v1/messages", httpapi.None, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("ANTHROPIC_API_KEY", "sk-of-somebody-else")
			t.Setenv("ANTHROPIC_AUTH_TOKEN", "token-of-somebody-else")
			s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
			p := claude(t, s, func(o *anthropic.Options) { o.BaseURL, o.AuthMethod = s.URL+tt.base, tt.method })
			if _, err := httpapitest.Collect(t.Context(), p, everything); err != nil {
				t.Fatal(err)
			}
			r, body := s.Request(0)
			for _, name := range []string{"X-Api-Key", "Api-Key", "Authorization"} {
				if want := map[string]string{tt.header: tt.value}[name]; r.Header.Get(name) != want {
					t.Errorf("header %s is %q, want %q", name, r.Header.Get(name), want)
				}
			}
			if r.Method != http.MethodPost || r.RequestURI != tt.target || r.Header.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("asked %s %s, want POST %s; headers %v", r.Method, r.RequestURI, tt.target, r.Header)
			}
			fixtures.Golden(t, "providers/anthropic/request.json", httpapitest.Pretty(t, body))
		})
	}
}

// asked is the answer of thinking.sse in a conversation, with the call's result.
func asked(change func(*protocol.Message)) provider.Request {
	answer := protocol.Message{
		Role: protocol.RoleAssistant, Content: "I look. ", Thinking: "Let me look größer.Now the file.", ThinkingSignature: signed,
		ToolCalls: []protocol.ToolCall{{ID: "toolu_01Lp", Name: "read_file", Input: jsontext.Value(`{"path":"a"}`)}},
	}
	if change != nil {
		change(&answer)
	}
	return provider.Request{Model: model, Messages: []protocol.Message{
		{Role: protocol.RoleUser, Content: "hello"},
		answer,
		{Role: protocol.RoleTool, ToolCallID: "toolu_01Lp", Content: "text of a"},
	}}
}

// budget is the option of models that think for a number of tokens.
func budget(o *anthropic.Options) { o.Thinking, o.ThinkingTokens = anthropic.ThinkingEnabled, 2048 }

// Reasoning goes back as it came, block by block.
func TestThinkingGoesBack(t *testing.T) {
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
	if _, err := httpapitest.Collect(t.Context(), claude(t, s, budget), asked(nil)); err != nil {
		t.Fatal(err)
	}
	_, body := s.Request(0)
	fixtures.Golden(t, "providers/anthropic/thinking.json", httpapitest.Pretty(t, body))
}

// Reasoning that is not what was signed stays here, and a budget waits until the
// calls are done with: the service would refuse both.
func TestThinkingStaysHere(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*protocol.Message)
	}{
		{"not signed", func(m *protocol.Message) { m.ThinkingSignature = "" }},
		{"no blocks", func(m *protocol.Message) { m.ThinkingSignature = "EqQB" }},
		{"by another model", func(m *protocol.Message) {
			m.ThinkingSignature = strings.Replace(m.ThinkingSignature, model, "claude-haiku-4-5", 1)
		}},
		{"other text", func(m *protocol.Message) { m.Content += "!" }},
		{"other reasoning", func(m *protocol.Message) { m.Thinking = m.Thinking[1:] }},
		{"other calls", func(m *protocol.Message) { m.ToolCalls = append(m.ToolCalls, m.ToolCalls[0]) }},
		{"interrupted", func(m *protocol.Message) { m.Interrupted = true }},
		{"bytes below none", func(m *protocol.Message) {
			m.ThinkingSignature = strings.Replace(m.ThinkingSignature, `{"kind":"text","bytes":8}`, `{"kind":"text","bytes":-1},{"kind":"text","bytes":9}`, 1)
		}},
		{"bytes beyond the end", func(m *protocol.Message) {
			m.ThinkingSignature = strings.Replace(m.ThinkingSignature, `{"kind":"text","bytes":8}`, `{"kind":"text","bytes":9},{"kind":"text","bytes":-1}`, 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
			if _, err := httpapitest.Collect(t.Context(), claude(t, s, budget), asked(tt.change)); err != nil {
				t.Fatal(err)
			}
			if _, body := s.Request(0); bytes.Contains(body, []byte("thinking")) || !bytes.Contains(body, []byte("I look.")) {
				t.Errorf("asked %s", body)
			}
		})
	}
}

// Each way to think is said as the service wants it.
func TestWaysToThink(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*anthropic.Options)
		want   string // in the request; "" for nothing
	}{
		{"default", nil, ""},
		{"adaptive", func(o *anthropic.Options) { o.Thinking = anthropic.ThinkingAdaptive }, `"thinking":{"display":"summarized","type":"adaptive"}`},
		{"enabled", budget, `"thinking":{"budget_tokens":2048,"type":"enabled"}`},
		{"disabled", func(o *anthropic.Options) { o.Thinking = anthropic.ThinkingDisabled }, `"thinking":{"type":"disabled"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
			if _, err := httpapitest.Collect(t.Context(), claude(t, s, tt.change), hello); err != nil {
				t.Fatal(err)
			}
			_, body := s.Request(0)
			if !bytes.Contains(body, []byte(tt.want)) || tt.want == "" && bytes.Contains(body, []byte("thinking")) {
				t.Errorf("asked %s, want %s", body, tt.want)
			}
		})
	}
}

// What the service refuses of a request is put right at once, and remembered.
func TestPutRight(t *testing.T) {
	good := httpapitest.Stream(recorded(t, "text.sse"))
	for _, tt := range []struct {
		name, refusal string
		request       provider.Request
		before, after string // one is in the first request, the other in the second
	}{
		{
			"too many tokens", "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
			hello, `"max_tokens":32000`, `"max_tokens":8192`,
		},
		{
			"a signature of somebody else", "messages.1.content.0: Invalid `signature` in `thinking` block",
			asked(nil), `"signature":`, `{"content":[{"text":"I look. ","type":"text"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httpapitest.Serve(t, httpapitest.Status(400, fault("invalid_request_error", tt.refusal)), good, good)
			p := claude(t, s, nil)
			got, err := httpapitest.Collect(t.Context(), p, tt.request)
			if diff := cmp.Diff(textDeltas, got); err != nil || diff != "" {
				t.Fatalf("error %v, -want +got\n%s", err, diff)
			}
			_, first := s.Request(0)
			_, second := s.Request(1)
			if !bytes.Contains(first, []byte(tt.before)) || bytes.Contains(second, []byte(tt.before)) || !bytes.Contains(second, []byte(tt.after)) {
				t.Errorf("asked %s\nthen %s", first, second)
			}
			if tt.request.Model != "" && strings.Contains(tt.after, "8192") {
				if _, err := httpapitest.Collect(t.Context(), p, hello); err != nil {
					t.Fatal(err)
				}
				if _, third := s.Request(2); !bytes.Contains(third, []byte(tt.after)) {
					t.Errorf("then asked %s", third)
				}
			}
		})
	}
}

// The same refusal twice is the end: nothing is asked for ever.
func TestPutRightOnce(t *testing.T) {
	refusal := httpapitest.Status(400, fault("invalid_request_error", "`thinking` blocks cannot be modified"))
	s := httpapitest.Serve(t, refusal, refusal)
	if _, err := httpapitest.Collect(t.Context(), claude(t, s, nil), asked(nil)); err == nil || s.Asked() != 2 {
		t.Errorf("asked %d times, error %v", s.Asked(), err)
	}
}

// FuzzStream: whatever a service sends, an answer ends, with a Stop as its last
// delta or with an error; the input of every whole call is JSON; and what an
// answer is signed with fits the message that is made of it.
func FuzzStream(f *testing.F) {
	for _, name := range fixtures.Glob(f, "providers/anthropic/*.sse") {
		f.Add(fixtures.Read(f, name))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := anthropic.New(anthropic.Options{Options: httpapi.Options{
			BaseURL: "http://h", AuthMethod: httpapi.XAPIKey, APIKey: httpapitest.Secret, MaxAttempts: 1, HTTPClient: &http.Client{Transport: httpapitest.Canned(body)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := httpapitest.Collect(t.Context(), p, hello)
		stopped := false
		said := protocol.Message{Role: protocol.RoleAssistant}
		for i, delta := range got {
			switch delta := delta.(type) {
			case provider.Text:
				said.Content += delta.Text
			case provider.Thinking:
				said.Thinking += delta.Text
			case provider.Call:
				if !delta.Input.IsValid() {
					t.Errorf("input %q of a call is not JSON", delta.Input)
				}
				said.ToolCalls = append(said.ToolCalls, delta.ToolCall)
			case provider.ThinkingSignature:
				said.ThinkingSignature = delta.Text
			case provider.Stop:
				stopped = i == len(got)-1
			}
		}
		if stopped == (err != nil) {
			t.Errorf("stopped %v with error %v", stopped, err)
		}
		if stopped && !anthropic.Fits(model, said) {
			t.Errorf("the signature does not fit %+v", said)
		}
	})
}
