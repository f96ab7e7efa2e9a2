package rpc_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
)

// Whatever a child sends, taking the agent out of the parameters leaves the
// others as they were.
func FuzzSplitTarget(f *testing.F) {
	for _, seed := range []string{
		`{"agent_id":"b","content":"x"}`, `{"agent_id":null}`, `{"agent_id":5}`, `{}`, `[]`, `null`, `{"agent_id":"a","agent_id":"b"}`,
		`{"agent_id":"\u0062","x":{"agent_id":9007199254740993}}`, `{"AGENT_ID":"b"}`, `{"agent_id":"../b"}`, `{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		target, rest, err := rpc.SplitTarget(api.Method{Scope: api.Agent}, params)
		if err != nil {
			return
		}
		if !api.ValidAgentID(target) {
			t.Errorf("target %q", target)
		}
		var before, after map[string]jsontext.Value
		if err := json.Unmarshal(params, &before); err != nil {
			t.Fatalf("parameters that cannot be read were taken: %v", err)
		}
		if err := json.Unmarshal(rest, &after); err != nil {
			t.Fatalf("rest %s: %v", rest, err)
		}
		if _, there := after["agent_id"]; there {
			t.Errorf("the agent is still in %s", rest)
		}
		delete(before, "agent_id")
		for _, members := range []map[string]jsontext.Value{before, after} {
			for name, value := range members {
				if err := value.Canonicalize(); err != nil {
					t.Fatal(err)
				}
				members[name] = value
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("members (-before +after):\n%s", diff)
		}
	})
}
