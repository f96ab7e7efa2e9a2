package openrpc_test

import (
	"path"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/openrpc"
	"nexus.internal/fixtures"
)

// eventSchema is one of the document's schemas of what event streams tell.
func eventSchema(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	raw, err := openrpc.Document("0", "http://127.0.0.1:8765")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.ReplaceAll(gjson.GetBytes(raw, "components.schemas").Raw, "#/components/schemas/", "#/$defs/")
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(`{"$ref":"#/$defs/`+name+`","$defs":`+all+`}`), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The golden events of children and servers are what the document says that the streams
// of events tell, each where it is told, and nowhere else.
func TestEventsAreAsPublished(t *testing.T) {
	agent, all := eventSchema(t, "AgentEvent"), eventSchema(t, "AnyEvent")
	for _, file := range append(fixtures.Glob(t, "frames/events/*.json"), fixtures.Glob(t, "frames/supervisor/*.json")...) {
		var frame any
		if err := json.Unmarshal(fixtures.Read(t, file), &frame); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".json"), "-")
		where := map[string]string{ // in a stream of an agent, of all bare, of all with its agent, and without a number
			"ready": "----", "response": "----", "later": "----", "open": "-b--", "node_state": "-b--", "agent_removed": "--xr", "end": "ab--",
		}[name]
		if where == "" {
			where = "a-o-"
		}
		for i, one := range []struct {
			schema *jsonschema.Resolved
			value  any
		}{
			{agent, frame},
			{all, frame},
			{all, map[string]any{"agent_id": "a", "seq": 7.0, "event": frame}},
			{all, map[string]any{"agent_id": "a", "event": frame}},
		} {
			if where[i] == 'x' { // a number too many is no fault
				continue
			}
			if err := one.schema.Validate(one.value); (err == nil) != (where[i] != '-') {
				t.Errorf("%s, %d of %q: %v", file, i, where, err)
			}
		}
	}
}
