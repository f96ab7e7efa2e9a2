package chaos

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// scenario is what the offline model plays, a turn for each word of the plan's
// prompts (SPEC §4.2). What the tools start sleeps for mark seconds, so that it
// can be told from everything else on the machine, but for what a bare one starts:
// that bears the server's tag alone.
func scenario(mark string) ([]byte, error) {
	type step = map[string]any
	shell := func(command string) []step {
		return []step{
			{"tool": step{"name": "shell", "input": step{"command": fmt.Sprintf(command, "sleep "+mark)}}}, {"text": "That was it."},
		}
	}
	turns := []step{}
	for word, steps := range map[string][]step{
		"talk":   {{"text": strings.Repeat("la ", 30), "every_ms": 20}},
		"wait":   {{"text": strings.Repeat("still ", 400), "every_ms": 50}},
		"flood":  {{"flood": step{"count": 1000, "bytes": 40}}},
		"think":  {{"thinking": "Let me think about what to say."}, {"text": "I have thought."}},
		"error":  {{"text": "So far so good."}, {"error": step{"message": "the model is overloaded"}}},
		"exit":   {{"text": "Good bye."}, {"exit": 7}},
		"panic":  {{"text": "Oh no."}, {"crash": "panic"}},
		"die":    {{"text": "Ouch."}, {"crash": "kill"}},
		"setsid": shell("setsid %s & echo begun"),
		"fork":   shell("(setsid sh -c '%[1]s & %[1]s &' &); echo forked"),
		"ignore": shell("trap '' TERM HUP INT; %s & sleep 0.2; echo deaf"),
		"hold":   shell("%s & echo held"),
		"bare":   shell("setsid env -i sleep 86400 & echo bare # not %s"),
		"storm":  shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid %s &); done; echo stormy"),
	} {
		turns = append(turns, step{"match": prompt(word), "steps": steps})
	}
	return json.Marshal(step{"turns": turns, "after": "offline"}, json.Deterministic(true))
}

// prompt is how a message asks for a turn of the scenario.
func prompt(word string) string { return "chaos " + word + "." }
