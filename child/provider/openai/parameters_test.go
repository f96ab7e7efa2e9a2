package openai_test

import (
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi/httpapitest"
)

// What a service refuses by name it is asked without, once; what it takes goes along from then on.
func TestParameters(t *testing.T) {
	good := httpapitest.Stream(recorded(t, "text.sse"))
	s := httpapitest.Serve(t,
		httpapitest.Status(400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens"}}`),
		httpapitest.Status(400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model."}}`),
		httpapitest.Status(422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted"}]}}`),
		good, good,
		httpapitest.Status(400, `{"error":{"message":"reasoning_effort is not for you"}}`), // another model
		good,
	)
	p := acme(t, s, nil)
	r := hello
	r.Parameters = &provider.Parameters{Temperature: new(0.2), MaxOutput: 99, Effort: "high"}
	for i, model := range []string{"a", "a", "b"} {
		r.Model = model
		got, err := httpapitest.Collect(t.Context(), p, r)
		if err != nil || len(got) != len(textDeltas) {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
	}
	for i, want := range []string{
		"99   0.2 high true", "  99 0.2 high true", "  99  high true", "  99  high ", "  99  high ", "99   0.2 high true", "99   0.2  true",
	} {
		_, body := s.Request(i)
		q := func(path string) string { return gjson.GetBytes(body, path).String() }
		if got := q("max_tokens") + "  " + q("max_completion_tokens") + " " + q("temperature") + " " + q("reasoning_effort") + " " + q("stream_options.include_usage"); got != want {
			t.Errorf("request %d: got %q, want %q", i, got, want)
		}
	}
}

// A refusal that names no parameter that was sent is an error.
func TestOtherRefusals(t *testing.T) {
	s := httpapitest.Serve(t, httpapitest.Status(400, `{"error":{"message":"temperature of the room"}}`))
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), hello); err == nil {
		t.Error("no error")
	}
}
