package client_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// Every event that a server can tell is known by its Go type, from a stream of one agent
// and from one of all; what is not known is kept as it was read.
func TestEventsHaveTypes(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range append(fixtures.Glob(t, "frames/events/*.json"), fixtures.Glob(t, "frames/supervisor/*.json")...) {
		frame := strings.TrimSpace(string(fixtures.Read(t, file)))
		name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".json"), "-")
		alone, err := client.Event{Type: name, Data: []byte(frame)}.Decode()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		of := client.Event{Type: name, Data: []byte(`{"agent_id":"a","seq":7,"event":` + frame + `}`)}
		owned, err := of.Decode()
		if diff := cmp.Diff(alone, owned); err != nil || diff != "" || of.Agent() != "a" || alone.Name() != name {
			t.Errorf("%s: %v of %s, %v: -alone +owned:\n%s", name, alone.Name(), of.Agent(), err, diff)
		}
		if unknown, is := alone.(protocol.UnknownEvent); is != (name == "later") || is && string(unknown.Raw) != frame {
			t.Errorf("%s is a %T: %s", name, alone, unknown.Raw)
		}
		seen[name] = true
	}
	for _, row := range api.EventTypes() {
		if !seen[row.Event.Name()] {
			t.Errorf("%s has no golden file", row.Event.Name())
		}
	}
	if e, err := (client.Event{Data: []byte(`{"type":"turn_end"}`)}).Decode(); err == nil {
		t.Errorf("without members it is %v", e)
	}
}

// Every notification of a streamed run of a plan has a type of its own.
func TestPlanPartsHaveTypes(t *testing.T) {
	for _, n := range api.RunPlan.Stream {
		raw, err := json.Marshal(n.Params)
		if err != nil {
			t.Fatal(err)
		}
		part, err := client.ReadPlanPart(n.Name, raw)
		if _, unknown := part.(client.UnknownPart); err != nil || unknown || part.Name() != n.Name {
			t.Errorf("%s is a %T, %v", n.Name, part, err)
			continue
		}
		again, err := json.Marshal(part)
		if diff := cmp.Diff(string(raw), string(again)); err != nil || diff != "" {
			t.Errorf("%s: %v -params +part:\n%s", n.Name, err, diff)
		}
	}
	part, err := client.ReadPlanPart("plan_pause", []byte(`{"x":1}`))
	if unknown, ok := part.(client.UnknownPart); err != nil || !ok || string(unknown.Params) != `{"x":1}` {
		t.Errorf("an unknown one is %v, %v", part, err)
	}
}

func ExampleEvent_Decode() {
	e := client.Event{Seq: 9, Type: "turn_end", Data: []byte(`{"type":"turn_end","turn_id":"r-1","outcome":"completed"}`)}
	event, err := e.Decode()
	switch event := event.(type) {
	case protocol.TurnEnd:
		fmt.Println(event.TurnID, event.Outcome, err)
	case protocol.UnknownEvent: // of a later server
	}
	// Output: r-1 completed <nil>
}
