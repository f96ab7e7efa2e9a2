package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi/httpapitest"
)

// An effort is what the model's version takes: a budget of tokens, or a word.
func TestParameters(t *testing.T) {
	const refused = `{"type":"error","error":{"type":"invalid_request_error","message":"temperature is deprecated for this model"}}`
	for _, tt := range []struct {
		model      string
		parameters provider.Parameters
		refuse     bool // the first request
		want       string
	}{
		{"claude-sonnet-4-5-20250929", provider.Parameters{Effort: "high"}, false, `32000 {"budget_tokens":24000,"type":"enabled"}  `},
		{"claude-haiku-4-5", provider.Parameters{Effort: "medium", MaxOutput: 3000, Temperature: new(0.3)}, false, `3000 {"budget_tokens":2999,"type":"enabled"}  `},
		{"claude-haiku-4-5", provider.Parameters{Effort: "low", MaxOutput: 1000}, false, `1000   `},
		{"claude-opus-4-5", provider.Parameters{Effort: "low"}, false, `32000 {"budget_tokens":2000,"type":"enabled"} low `},
		{"claude-opus-4-6", provider.Parameters{Effort: "low"}, false, `32000 {"display":"summarized","type":"adaptive"} low `},
		{"claude-sonnet-5", provider.Parameters{Effort: "high"}, false, `32000 {"display":"summarized","type":"adaptive"} high `},
		{"claude-3-haiku-20240307", provider.Parameters{Temperature: new(1.5)}, false, `32000   1`},
		{"claude-opus-4-7", provider.Parameters{Temperature: new(0.0), MaxOutput: 500}, false, `500   0`},
		{"claude-opus-4-7", provider.Parameters{Temperature: new(0.5)}, true, `32000   `},
	} {
		answers := []http.HandlerFunc{httpapitest.Stream(recorded(t, "text.sse"))}
		if tt.refuse {
			answers = append([]http.HandlerFunc{httpapitest.Status(400, refused)}, answers...)
		}
		s := httpapitest.Serve(t, answers...)
		r := hello
		r.Model, r.Parameters = tt.model, &tt.parameters
		if _, err := httpapitest.Collect(t.Context(), claude(t, s, nil), r); err != nil {
			t.Fatalf("%s: %v", tt.model, err)
		}
		_, body := s.Request(len(answers) - 1)
		q := func(path string) string { return gjson.GetBytes(body, path).Raw }
		effort := gjson.GetBytes(body, "output_config.effort").Str
		if got := q("max_tokens") + " " + q("thinking") + " " + effort + " " + q("temperature"); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.model, got, tt.want)
		}
	}
}
