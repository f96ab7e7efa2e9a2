package cli_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"nexus.internal/cmd/internal/cli"
)

func TestYAML(t *testing.T) {
	got, err := cli.ToYAML([]byte(`{"agents":[{"agent_id":"a","pid":7,"model":null,"pending":[],"more":{"x":[1,[2,"no"]]}},` +
		`{"agent_id":"true","cwd":"/home/me/My work","note":"it's 5: \"so\""}],"text":"one\n  two\n","cut":"a\nb","": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `agents:
  - agent_id: a
    pid: 7
    model: null
    pending: []
    more:
      x:
        - 1
        - - 2
          - "no"
  - agent_id: "true"
    cwd: /home/me/My work
    note: "it's 5: \"so\""
text: |
  one
    two
cut: |-
  a
  b
"": {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// FuzzYAML: a reader of YAML gets the value that stands in the JSON, behind the screen, too.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		`{"a":[{"b":[[],{}]},[{"c":1}]],"text":"a\n\n b\n"}`, `"x\ny"`, `["x\ny","- x","#","a: b","~","1e3","0x1f","2026-01-02","=","<<",".inf"]`,
		`["\u001b[31m","\u0085","\u2028","\ufeff","\uffff","\u200e\nx","\ud83d\ude00","\udb40\udc41","\u007f","\t","a\n\tb","a\n ","a \nb"," a\nb","\na\nb","a\nb\n\n"]`,
		`{"n":-1.5,"y":"y","No":"Null","a b":" a","key: x":"a ","é":"é"}`, `[["a"],[["b\nc"]]]`, `"---"`, `["...\n---\n%"]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		value, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := cli.ToYAML(value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		var got any
		if err := yaml.Unmarshal([]byte(cli.Harmless(string(lines), false)), &got); err != nil {
			t.Fatalf("%s: %v\n%s", value, err, lines)
		}
		back, err := json.Marshal(got) // of the same Go types: a whole number is none of JSON's floats
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(back, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("-want +got\n%s\n%s", diff, lines)
		}
	})
}
