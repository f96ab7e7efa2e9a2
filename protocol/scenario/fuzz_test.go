package scenario_test

import (
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/scenario"
	"nexus.internal/protocol/strict"
)

// FuzzScenario: what is taken for a scenario is one JSON object without doubt
// (no member twice, no name in another case), has a turn, and each step of it
// says one thing; what is not taken is refused with a reason that is text.
func FuzzScenario(f *testing.F) {
	for _, text := range []string{
		`{"turns":[{"match":"a","steps":[{"text":"b","every_ms":5},{"tool":{"name":"sleep","input":{"seconds":1}}}]}],"after":"offline"}`,
		`{"comment":"c","turns":[{"steps":[]},{"steps":[{"flood":{"count":1,"bytes":2}},{"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}}]}]}`,
		`{"turns":[{"steps":[{"hang":"deaf"},{"crash":"kill"},{"exit":255},{"delay_ms":0},{"retry":"r"},{"stderr":"s"},{"error":{"message":"m","context_window":true}},{"thinking":"t"}]}],"after":"repeat"}`,
		`{"turns":[{"steps":[{"text":"a","exit":0}]}]}`, `{"turns":[]}`, `{"turns":[{"Steps":[]}]}`, `{"turns":[{"steps":[{"text":"a","text":"b"}]}]}`, `null`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := scenario.Parse(text)
		if err != nil {
			if !utf8.ValidString(err.Error()) || err.Error() == "" {
				t.Errorf("refused with %q", err)
			}
			return
		}
		if err := strict.Valid(text); err != nil {
			t.Fatalf("accepted although %v", err)
		}
		turns := gjson.GetBytes(text, "turns").Array()
		if len(turns) == 0 {
			t.Error("accepted without a turn")
		}
		for _, turn := range turns {
			for _, step := range turn.Get("steps").Array() {
				said := 0
				step.ForEach(func(key, value gjson.Result) bool {
					if key.Str != "every_ms" && value.Type != gjson.Null {
						said++
					}
					return true
				})
				if said != 1 {
					t.Errorf("accepted a step that says %d things: %s", said, step)
				}
			}
		}
	})
}
