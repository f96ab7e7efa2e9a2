package openai_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// Each service has ways of its own to say the same.
func TestDialects(t *testing.T) {
	for _, tt := range []struct {
		name, base, target string
		method             httpapi.AuthMethod
		want               []provider.Delta
	}{
		{"openrouter", "/api/v1", "/api/v1/chat/completions", httpapi.Bearer, []provider.Delta{
			provider.Thinking{Text: "Hm."},
			provider.Text{Text: "Hello"},
			provider.Text{Text: "!"},
			reasonedWith("reasoning_details", 3, 6, `[{"format":"anthropic-claude-v1","index":0,"text":"Hm.","type":"reasoning.text"}]`),
			provider.Stop{Reason: provider.FinishStop, Usage: protocol.TurnUsage{
				InputTokens: 120, OutputTokens: 9, CacheReadInputTokens: 100, CacheCreationInputTokens: 15, Model: model("anthropic/claude-sonnet-4"),
			}},
		}},
		{
			"azure", "/openai/deployments/mini?api-version=2024-10-21", "/openai/deployments/mini/chat/completions?api-version=2024-10-21",
			httpapi.APIKey,
			[]provider.Delta{
				provider.Text{Text: "Hello"},
				provider.Stop{Reason: provider.FinishFiltered, Usage: protocol.TurnUsage{
					InputTokens: 9, OutputTokens: 2, Model: model("gpt-4.1-mini-2025-04-14"),
				}},
			},
		},
		{"ollama", "/v1", "/v1/chat/completions", httpapi.None, []provider.Delta{
			provider.Thinking{Text: "Two files."},
			provider.CallStart{ID: "call_x1", Name: "read_file"},
			provider.CallInput{ID: "call_x1", Fragment: `{"path":"a"}`},
			provider.CallStart{ID: "call_x2", Name: "read_file"},
			provider.CallInput{ID: "call_x2", Fragment: `{"path":"b"}`},
			provider.Call{ToolCall: protocol.ToolCall{ID: "call_x1", Name: "read_file", Input: jsontext.Value(`{"path":"a"}`)}},
			provider.Call{ToolCall: protocol.ToolCall{ID: "call_x2", Name: "read_file", Input: jsontext.Value(`{"path":"b"}`)}},
			provider.Stop{Reason: provider.FinishToolCalls, Usage: protocol.TurnUsage{InputTokens: 171, OutputTokens: 36, Model: model("qwen3:8b")}},
		}},
		{"vllm", "/v1", "/v1/chat/completions", httpapi.Bearer, []provider.Delta{
			provider.Thinking{Text: "Hm."},
			provider.Text{Text: "\n\nHello"},
			reasonedWith("reasoning_content", 3, 7, ""),
			provider.Stop{Reason: provider.FinishStop, Usage: protocol.TurnUsage{
				InputTokens: 14, OutputTokens: 17, CacheReadInputTokens: 8, Model: model("Qwen/Qwen3-8B"),
			}},
		}},
		{"lmstudio", "/v1", "/v1/chat/completions", httpapi.None, []provider.Delta{
			provider.CallStart{ID: "365174485", Name: "sleep"},
			provider.CallInput{ID: "365174485", Fragment: `{"seconds"`},
			provider.CallInput{ID: "365174485", Fragment: `:1}`},
			provider.Call{ToolCall: protocol.ToolCall{ID: "365174485", Name: "sleep", Input: jsontext.Value(`{"seconds":1}`)}},
			provider.Stop{Reason: provider.FinishToolCalls, Usage: protocol.TurnUsage{InputTokens: 60, OutputTokens: 11, Model: model("qwen2.5-7b-instruct")}},
		}},
		{"llamacpp", "/v1", "/v1/chat/completions", httpapi.None, []provider.Delta{
			provider.Thinking{Text: "Hm."},
			provider.Text{Text: "Hello"},
			reasonedWith("reasoning_content", 3, 5, ""),
			provider.Stop{Reason: provider.FinishLength, Usage: protocol.TurnUsage{InputTokens: 12, OutputTokens: 2, Model: model("gpt-3.5-turbo")}},
		}},
		{"deepseek", "", "/chat/completions", httpapi.Bearer, []provider.Delta{
			provider.Thinking{Text: "Hm."},
			provider.Text{Text: "Hello"},
			reasonedWith("reasoning_content", 3, 5, ""),
			provider.Stop{Reason: provider.FinishStop, Usage: protocol.TurnUsage{
				InputTokens: 16, OutputTokens: 10, CacheReadInputTokens: 11, Model: model("deepseek-chat"),
			}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := recorded(t, tt.name+".sse")
			s := httpapitest.Serve(t, httpapitest.Stream(whole), httpapitest.Stream(httpapitest.ByteByByte(whole)...))
			p := acme(t, s, func(o *openai.Options) { o.BaseURL, o.AuthMethod = s.URL+tt.base, tt.method })
			for range 2 {
				got, err := httpapitest.Collect(t.Context(), p, hello)
				if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
					t.Errorf("error %v, -want +got\n%s", err, diff)
				}
			}
			if r, _ := s.Request(0); r.RequestURI != tt.target {
				t.Errorf("asked %s, want %s", r.RequestURI, tt.target)
			}
		})
	}
}

// Errors in the midst of a stream, as services send them.
func TestDialectErrors(t *testing.T) {
	good := httpapitest.Stream(recorded(t, "text.sse"))
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "vllm-error.sse")), good)
	if got, err := httpapitest.Collect(t.Context(), acme(t, s, nil), hello); err != nil || len(got) != 1+len(textDeltas) ||
		!strings.Contains(got[0].(provider.Retry).Reason, ": the service reported an error; try 2 of 4") {
		t.Errorf("vllm, before anything was said: deltas %v, error %v", got, err)
	}
	s = httpapitest.Serve(t, httpapitest.Stream(recorded(t, "openrouter-error.sse")))
	_, err := httpapitest.Collect(t.Context(), acme(t, s, nil), hello)
	if want := "provider acme: the service reported an error: Provider disconnected unexpectedly"; err == nil || err.Error() != want {
		t.Errorf("openrouter, after something was said: error %v, want %q", err, want)
	}
	s = httpapitest.Serve(t, httpapitest.Stream(recorded(t, "lmstudio-error.sse")))
	if _, err = httpapitest.Collect(t.Context(), acme(t, s, nil), hello); !errors.Is(err, provider.ErrContextWindow) {
		t.Errorf("lmstudio: error %v, want ErrContextWindow", err)
	}
}

// images are those whose digest is "ok".
type images struct{}

func (images) Get(i protocol.Image) ([]byte, error) {
	if i.SHA256 != "ok" {
		return nil, errors.New("it is gone")
	}
	return []byte("\x89PNG " + i.Name), nil
}

// pictures is a conversation with images in a question and in results.
var pictures = provider.Request{
	Model:  "gpt-4.1-mini",
	Images: images{},
	Messages: []protocol.Message{
		{Role: protocol.RoleUser, Content: "look", Images: []protocol.Image{
			{Name: "a.png", Mime: "image/png", SHA256: "ok"}, {Name: "b.png", Mime: "image/png"},
		}},
		{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{
			{ID: "c1", Name: "read_file", Input: jsontext.Value(`{}`)}, {ID: "c2", Name: "read_file", Input: jsontext.Value(`{}`)},
		}},
		{Role: protocol.RoleTool, ToolCallID: "c1", Content: "an image", Images: []protocol.Image{{Mime: "image/jpeg", SHA256: "ok"}}},
		{Role: protocol.RoleTool, ToolCallID: "c2", Content: "text"},
		{Role: protocol.RoleUser, Images: []protocol.Image{{Name: "c.png", Mime: "image/png", SHA256: "ok"}}},
	},
}

func TestImages(t *testing.T) {
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), pictures); err != nil {
		t.Fatal(err)
	}
	_, body := s.Request(0)
	fixtures.Golden(t, "providers/openai/images.json", httpapitest.Pretty(t, body))
}

// A model without eyes is told of the images in words: else one image would end
// every turn of the session from then on.
func TestImagesRefused(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"No endpoints found that support image input","code":404}}`,
		`{"error":{"message":"Failed to deserialize the JSON body into the target type: messages[0]: unknown variant ` + "`image_url`, expected `text`" + `"}}`,
		`{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`,
		`{"object":"error","message":"At most 0 image(s) may be provided in one request.","type":"BadRequestError","code":400}`,
	} {
		s := httpapitest.Serve(t, httpapitest.Status(400, body), httpapitest.Stream(recorded(t, "text.sse")))
		got, err := httpapitest.Collect(t.Context(), acme(t, s, func(o *openai.Options) { o.MaxAttempts = 1 }), pictures)
		if err != nil || len(got) != 1+len(textDeltas) || !strings.HasSuffix(got[0].(provider.Retry).Reason, "; once more without images") {
			t.Fatalf("%s\ngave %v, error %v", body, got, err)
		}
		_, second := s.Request(1)
		if strings.Contains(string(second), "image_url") || !strings.Contains(string(second), "[image a.png is not shown: the model takes no images]") {
			t.Errorf("asked %s", second)
		}
	}
	// Where there are none, the same words are an error like any other.
	s := httpapitest.Serve(t, httpapitest.Status(400, `{"error":{"message":"no image"}}`))
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), hello); err == nil {
		t.Error("no error")
	}
}
