package conversation_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/conversation"
)

// However a model wrote the input of a call, what is left of it in a request is
// JSON of the same kind, and no longer.
func FuzzSqueeze(f *testing.F) {
	f.Add(`{"path":"a","content":"`+strings.Repeat("x", 300)+`"}`, 2000)
	f.Add(`{"a":{"b":["`+strings.Repeat("y", 400)+`"]},"a b":1}`, 0)
	f.Add(`"`+strings.Repeat("z", 3000)+`"`, 9)
	f.Fuzz(func(t *testing.T, input string, size int) {
		if !jsontext.Value(input).IsValid() || size < 0 || size > 100_000 {
			return // a turn makes JSON of it first
		}
		d := conversation.New(nil, conversation.Preamble{ContextWindow: 1333})
		d.Add(user("go"))
		d.Add(step("1", input, strings.Repeat("é", size))...)
		window, err := d.Fit(0)
		if err != nil {
			return
		}
		got := window.Messages[1].ToolCalls[0].Input
		if !got.IsValid() || got.Kind() != jsontext.Value(input).Kind() || len(got) > len(input) {
			t.Errorf("%q became %q", input, got)
		}
		if request, _ := d.Estimate(window, 0); request > d.Breakdown().Available+2 {
			t.Errorf("a request of %d tokens", request)
		}
	})
}
