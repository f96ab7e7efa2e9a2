package openai_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
	"nexus.internal/child/tool"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

func respond(t *testing.T, s *httpapitest.Service) provider.Provider {
	t.Helper()
	p, err := openai.NewResponses(openai.Options{
		Name: "acme", BaseURL: s.URL + "/v1", AuthMethod: httpapi.Bearer, APIKey: secret, HTTPClient: s.Client(), RetryBackoff: 1, MaxAttempts: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func responseStream(t *testing.T, name string) []byte {
	t.Helper()
	return fixtures.Read(t, "providers/openai-responses/"+name)
}

const made = `{"model":"gpt-4.1-mini","blocks":[{"kind":"reasoning_item","bytes":37,"opaque":"` + `{\"encrypted_content\":\"gAAAAABencrypted==\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"The user wants two files.\"},{\"type\":\"summary_text\",\"text\":\"Read both.\"}],\"type\":\"reasoning\"}` + `"},{"kind":"text","bytes":12},{"kind":"call"},{"kind":"call"}]}`

func TestResponses(t *testing.T) {
	usage := protocol.TurnUsage{InputTokens: 81, OutputTokens: 137, CacheReadInputTokens: 64, Model: model("gpt-5-mini-2025-08-07")}
	for name, want := range map[string][]provider.Delta{
		"text.sse": {
			provider.Text{Text: "Grüße"},
			provider.Text{Text: ", Alice"},
			provider.Text{Text: " 👋\n\"quoted\""},
			provider.Stop{Reason: provider.FinishStop, Usage: usage},
		},
		"incomplete.sse": {provider.Text{Text: "Once upon"}, provider.Stop{Reason: provider.FinishLength, Usage: usage}},
		"tools.sse": {
			provider.Thinking{Text: "The user "},
			provider.Thinking{Text: "wants two files."},
			provider.Thinking{Text: "\n\n"},
			provider.Thinking{Text: "Read both."},
			provider.Text{Text: "I read "},
			provider.Text{Text: "them."},
			provider.CallStart{ID: "call_a", Name: "read_file"},
			provider.CallInput{ID: "call_a", Fragment: `{"pa`},
			provider.CallInput{ID: "call_a", Fragment: `th":"größe.txt"}`},
			provider.CallStart{ID: "call_b", Name: "sleep"},
			provider.CallInput{ID: "call_b", Fragment: `{"seconds":`},
			provider.CallInput{ID: "call_b", Fragment: `0.5}`},
			provider.Call{ToolCall: protocol.ToolCall{ID: "call_a", Name: "read_file", Input: jsontext.Value(`{"path":"größe.txt"}`)}},
			provider.Call{ToolCall: protocol.ToolCall{ID: "call_b", Name: "sleep", Input: jsontext.Value(`{"seconds":0.5}`)}},
			provider.ThinkingSignature{Text: made},
			provider.Stop{Reason: provider.FinishToolCalls, Usage: usage},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := responseStream(t, name)
			for _, pieces := range [][][]byte{{whole}, httpapitest.ByteByByte(whole)} {
				got, err := httpapitest.Collect(t.Context(), respond(t, httpapitest.Serve(t, httpapitest.Stream(pieces...))), hello)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
		})
	}
}

// An answer that breaks off before its response has ended, or that says that it failed, is an error.
func TestResponsesThatFail(t *testing.T) {
	whole := responseStream(t, "text.sse")
	end := bytes.Index(whole, []byte("event: response.completed"))
	for name, tt := range map[string]struct {
		stream []byte
		want   string
		tries  int
	}{
		"cut off":   {whole[:end], "broke off", 1},
		"failed":    {responseStream(t, "failed.sse"), "The server had an error", 2},
		"limited":   {responseStream(t, "error.sse"), "Rate limit reached", 2},
		"malformed": {[]byte("data: {\"type\":\"response.completed\",\"response\":7}\n\n"), "malformed", 1},
	} {
		s := httpapitest.Serve(t, httpapitest.Stream(tt.stream), httpapitest.Stream(tt.stream))
		got, err := httpapitest.Collect(t.Context(), respond(t, s), hello)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// An answer goes back as it was: its reasoning as the service encrypted it, before what it led to. A
// service that refuses that, or a parameter, is asked without.
func TestResponsesGoBack(t *testing.T) {
	r := hello
	r.System = "be brief"
	r.Parameters = &provider.Parameters{Effort: "low", MaxOutput: 9, Temperature: new(0.1)}
	r.Tools = []tool.Spec{{Name: "sleep", Description: "waits", InputSchema: jsontext.Value(`{"type":"object"}`)}}
	r.Messages = []protocol.Message{
		{Role: protocol.RoleUser, Content: "go"},
		{
			Role: protocol.RoleAssistant, Content: "I read them.", Thinking: "The user wants two files.\n\nRead both.", ThinkingSignature: made,
			ToolCalls: []protocol.ToolCall{{ID: "call_a", Name: "read_file", Input: jsontext.Value(`{"path":"x"}`)}, {ID: "call_b", Name: "sleep", Input: jsontext.Value(`{}`)}},
		},
		{Role: protocol.RoleTool, ToolCallID: "call_a", Content: "text"},
	}
	good := httpapitest.Stream(responseStream(t, "text.sse"))
	refuse := func(text string) http.HandlerFunc {
		return httpapitest.Status(400, `{"error":{"message":"`+text+`","type":"invalid_request_error"}}`)
	}
	s := httpapitest.Serve(t,
		refuse("The reasoning item cannot be verified"), refuse("Unsupported parameter: 'temperature' is not supported with this model."),
		refuse("Encrypted content is not supported with this model."), good,
	)
	got, err := httpapitest.Collect(t.Context(), respond(t, s), r)
	if err != nil || len(got) != 4 {
		t.Fatal(got, err)
	}
	for i, want := range []string{
		gjson.GetBytes(responseStream(t, "request.json"), "@ugly").Raw,
		"", "", "",
	} {
		request, body := s.Request(i)
		if request.URL.Path != "/v1/responses" || want != "" && cmp.Diff(want, string(body)) != "" {
			t.Errorf("request %d to %s: -want +got\n%s", i, request.URL.Path, cmp.Diff(want, string(body)))
		}
	}
	_, last := s.Request(3)
	for path, want := range map[string]string{"include": "", "temperature": "", "reasoning.effort": "low", "input.1.type": "message"} {
		if got := gjson.GetBytes(last, path).String(); got != want {
			t.Errorf("%s of the last request is %q, want %q", path, got, want)
		}
	}
}
