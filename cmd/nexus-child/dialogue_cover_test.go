package main

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/tools/txtar"

	"nexus.internal/fixtures"
)

// unsaid are the types that no dialogue has. One that a dialogue has must go from here.
var unsaid = []string{
	"later",         // of no version
	"context_given", // of agents of other makes, which fixtures/fakeagent plays elsewhere
	"foreign",
	"subagent_update", // comes after 10 s
}

// Every command is said in some dialogue, and every event and step of a turn is
// answered.
func TestDialoguesHaveEveryFrame(t *testing.T) {
	var said, answered []string
	for _, file := range fixtures.Glob(t, "dialogues/*.txtar") {
		for _, f := range txtar.Parse(fixtures.Read(t, file)).Files {
			for line := range strings.SplitSeq(string(f.Data), "\n") {
				verb, text, _ := strings.Cut(line, " ")
				frame := gjson.Parse(text)
				switch verb {
				case ">":
					said = append(said, frame.Get("type").Str)
				case "<", "<*", "<?":
					answered = append(answered, frame.Get("type").Str, frame.Get("event.type").Str)
				}
			}
		}
	}
	var want []string // of the golden files, of which each type has one
	for _, file := range fixtures.Glob(t, "frames/commands/*.json") {
		name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".json"), "-")
		if !slices.Contains(said, name) {
			t.Errorf("no dialogue has the command %s", name)
		}
	}
	for _, file := range fixtures.Glob(t, "frames/events/*.json") {
		frame := gjson.ParseBytes(fixtures.Read(t, file))
		want = append(want, frame.Get("type").Str)
		if step := frame.Get("event.type"); step.Exists() && step.Str != "citation" { // which stands for any unknown one
			want = append(want, step.Str)
		}
	}
	for _, typ := range want {
		if slices.Contains(answered, typ) == slices.Contains(unsaid, typ) {
			t.Errorf("event %s: in a dialogue %v, in the list of those that are in none %v",
				typ, slices.Contains(answered, typ), slices.Contains(unsaid, typ))
		}
	}
}
