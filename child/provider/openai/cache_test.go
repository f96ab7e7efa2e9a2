package openai_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
)

// Models of Anthropic behind an aggregator get marks for the cache, others none.
func TestCacheMarks(t *testing.T) {
	r := pictures // a text with an image
	r.System = "be brief"
	for range 2 {
		r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)],
			protocol.Message{Role: protocol.RoleAssistant, Content: "so", ToolCalls: []protocol.ToolCall{{ID: "c", Name: "x", Input: jsontext.Value("{}")}}},
			protocol.Message{Role: protocol.RoleTool, ToolCallID: "c", Content: "result"},
			protocol.Message{Role: protocol.RoleUser, Content: "and"},
		)
	}
	for model, want := range map[string]string{"anthropic/claude-sonnet-4.5": "system user user", "openai/gpt-4.1": ""} {
		s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
		r.Model = model
		if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), r); err != nil {
			t.Fatal(err)
		}
		_, body := s.Request(0)
		var marked []string
		for _, m := range gjson.GetBytes(body, "messages").Array() {
			if strings.Contains(m.Raw, "cache_control") {
				marked = append(marked, m.Get("role").Str)
			}
		}
		if got := strings.Join(marked, " "); got != want {
			t.Errorf("%s: marked %q, want %q", model, got, want)
		}
		if last := gjson.GetBytes(body, "messages.@reverse.0").Raw; want != "" && last != `{"content":[{"cache_control":{"type":"ephemeral"},"text":"and","type":"text"}],"role":"user"}` {
			t.Errorf("the last one is %s", last)
		}
	}
}
