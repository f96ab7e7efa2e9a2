package schema_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/schema"
)

// frames is the schema of the frames, or that of those of one kind or type.
func frames(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	of := schema.Child()
	switch name {
	case "":
	case "command", "event":
		of.AnyOf = []*schema.Schema{{Ref: "#/$defs/" + name}}
	default: // which needs no other definition
		i := slices.IndexFunc(of.Defs.List, func(m schema.Member) bool { return m.Name == name })
		of = of.Defs.List[i].Schema
	}
	raw, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func validate(of *jsonschema.Resolved, frame []byte) error {
	var v any
	if err := json.Unmarshal(frame, &v); err != nil {
		return err
	}
	return of.Validate(v)
}

// Every golden frame is what the schema says: of its kind, of its type, and of any.
func TestGoldenFramesAreAsPublished(t *testing.T) {
	all := frames(t, "")
	for _, kind := range []string{"command", "event"} {
		of := frames(t, kind)
		for _, file := range fixtures.Glob(t, "frames/"+kind+"s/*.json") {
			name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".json"), "-")
			schemas := []*jsonschema.Resolved{all, of}
			if name != "later" { // of no version
				schemas = append(schemas, frames(t, name))
			}
			for i, one := range schemas {
				if err := validate(one, fixtures.Read(t, file)); err != nil {
					t.Errorf("%s is refused (%d): %v", file, i, err)
				}
			}
		}
	}
}

// beyond are frames that are refused for what a schema does not tell apart: 1.0 from 1,
// and numbers that are too large.
var beyond = []string{"event-duration_too_large", "offset_fraction", "offset_too_large"}

// What a reader refuses the schema does, as far as it is JSON at all.
func TestInvalidFramesAreRefused(t *testing.T) {
	all, commands, events := frames(t, ""), frames(t, "command"), frames(t, "event")
	refused := 0
	for _, file := range fixtures.Glob(t, "frames/invalid/*.json") {
		name := strings.TrimSuffix(path.Base(file), ".json")
		why := string(fixtures.Read(t, strings.TrimSuffix(file, ".json")+".err"))
		if strings.HasPrefix(why, "*protocol.SyntaxError") && name != "array" || strings.Contains(strings.Join(beyond, " "), name) {
			continue
		}
		kind := commands
		if strings.HasPrefix(name, "event-") {
			kind = events
		}
		if validate(kind, fixtures.Read(t, file)) == nil {
			t.Errorf("%s is taken by the schema of its kind, and refused by readers: %s", name, why)
		}
		// Of another type it might be an event of a later version.
		if name != "event_as_command" && !strings.HasPrefix(name, "unknown_type") && validate(all, fixtures.Read(t, file)) == nil {
			t.Errorf("%s is taken by the schema of all frames, and refused by readers: %s", name, why)
		}
		refused++
	}
	if refused < 25 {
		t.Errorf("only %d were looked at", refused)
	}
}

// A response says yes with the members of its command, or no with an error.
func TestResponsesAreAsPublished(t *testing.T) {
	of := frames(t, "response")
	for body, ok := range map[string]bool{
		`"command":"ping","ok":true`:                                    true,
		`"command":"ping"`:                                              false,
		`"command":"ping","ok":false`:                                   false,
		`"command":"ping","ok":false,"error":"no"`:                      true,
		`"command":"ping","ok":false,"error":"no","reason":"not_saved"`: true,
		`"command":"set_cwd","ok":true,"cwd":"/srv"`:                    true,
		`"command":"set_cwd","ok":true`:                                 false,
		`"command":"set_cwd","ok":true,"cwd":7`:                         false,
		`"command":"get_state","ok":true`:                               false,
		`"command":"compact","ok":true,"compacted":true,"by":"magic"`:   false,
		`"command":"sing","ok":true,"song":"…"`:                         true,
		`"command":"sing","ok":"yes"`:                                   false,
	} {
		if err := validate(of, []byte(`{"type":"response","id":"1",`+body+`}`)); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Every command and event has a definition.
func TestEveryTypeIsDefined(t *testing.T) {
	names := map[string]bool{}
	for _, m := range schema.Child().Defs.List {
		if names[m.Name] {
			t.Errorf("%s is defined twice", m.Name)
		}
		names[m.Name] = true
	}
	for _, c := range protocol.Commands() {
		if !names[c.Name()] {
			t.Errorf("the command %s is not defined", c.Name())
		}
	}
	for _, e := range protocol.Events() {
		if !names[e.Name()] {
			t.Errorf("the event %s is not defined", e.Name())
		}
	}
}
