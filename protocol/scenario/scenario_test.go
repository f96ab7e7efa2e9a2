package scenario_test

import (
	"testing"

	"nexus.internal/protocol/scenario"
)

func TestParse(t *testing.T) {
	step := func(text string) string { return `{"turns":[{"steps":[{"text":"a"},` + text + `]}]}` }
	for _, tt := range []struct{ text, want string }{
		{``, "there is no value"},
		{`{}`, `member "turns" is missing`},
		{`{"turns":[]}`, `member "turns" is empty`},
		{`{"turns":[{}]}`, `member "turns[0].steps" is missing`},
		{`{"turns":[{"match":"","steps":[]}]}`, `member "turns[0].match" is empty`},
		{`{"turns":[{"steps":[]}],"after":"stop"}`, `member "after" must be fail, repeat or offline, is "stop"`},
		{`{"turns":[{"steps":[]}],"turn":1}`, `member "turn" is not known; did you mean "turns"?`},
		{step(`{}`), `member "turns[0].steps[1]" must have one action, has none`},
		{step(`{"text":null}`), `member "turns[0].steps[1]" must have one action, has none`},
		{step(`{"exit":256}`), `member "turns[0].steps[1].exit" must be 0 to 255, is 256`},
		{step(`{"text":"a","hang":"deaf"}`), `member "turns[0].steps[1]" must have one action, has 2: text, hang`},
		{step(`{"texts":"a"}`), `member "turns[0].steps[1].texts" is not known; did you mean "text"?`},
		{step(`{"hang":"long"}`), `member "turns[0].steps[1].hang" must be until_aborted or deaf, is "long"`},
		{step(`{"crash":"burn"}`), `member "turns[0].steps[1].crash" must be panic or kill, is "burn"`},
		{step(`{"delay_ms":3600001}`), `member "turns[0].steps[1].delay_ms" must be 0 to 3600000, is 3600001`},
		{step(`{"flood":{"count":0,"bytes":1}}`), `member "turns[0].steps[1].flood.count" must be 1 to 10000000, is 0`},
		{step(`{"flood":{"count":1,"bytes":5000000}}`), `member "turns[0].steps[1].flood.bytes" must be 1 to 4194304, is 5000000`},
		{step(`{"hang":"deaf","every_ms":1}`), `member "turns[0].steps[1].every_ms" goes with text, thinking and flood only`},
		{step(`{"tool":{"name":"x"}}`), `member "turns[0].steps[1].tool.input" is missing`},
		{step(`{"usage":{"input_tokens":1}}`), `member "turns[0].steps[1].usage.output_tokens" is missing`},
	} {
		_, err := scenario.Parse([]byte(tt.text))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}
