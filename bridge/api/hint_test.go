package api_test

import (
	"errors"
	"testing"

	"nexus.internal/bridge/api"
)

// An unknown parameter is told with the one that was meant, at any depth, and so is a value of a few.
func TestParameterHints(t *testing.T) {
	for _, test := range []struct{ params, problem, hint string }{
		{`{"agnet_id":"a"}`, "Unknown parameter: agnet_id", "did you mean agent_id?"},
		{`{"limits":{"token":1}}`, "Unknown parameter: limits.token", "did you mean limits.tokens?"},
		{`{"limits":{"colour":1}}`, "Unknown parameter: limits.colour", "known are: agents, cost_usd, cpu_s, memory_bytes, open_files, " +
			"output_bytes_per_s, processes, requests_per_minute, tokens, tokens_per_minute, turn_s"},
		{`{"if_exists":"usse"}`, "Invalid parameter if_exists: want fail or use", "did you mean use?"},
		{`{"approvals":"aks"}`, "Invalid parameter approvals: want ask or deny", "did you mean ask?"},
		{`{"agent_id":7}`, "Invalid parameter agent_id: must be a string, is the number 7", ""},
	} {
		_, err := api.Decode[api.CreateAgentParams]([]byte(test.params))
		e, ok := errors.AsType[*api.ParamError](err)
		if !ok || e.Problem != test.problem || e.Hint != test.hint {
			t.Errorf("%s: got %+v, want %q %q", test.params, e, test.problem, test.hint)
		}
	}
	_, err := api.Decode[api.None]([]byte(`{"colour":"red"}`))
	if e, ok := errors.AsType[*api.ParamError](err); !ok || e.Hint != "it takes none" {
		t.Errorf("of none: %+v", err)
	}
	_, err = api.Decode[api.RunPlanParams]([]byte(`{"plan":{"tasks":[{"id":"a","type":"testing","description":"x","dependncies":[]}]}}`))
	if e, ok := errors.AsType[*api.ParamError](err); !ok || e.Hint != "did you mean plan.tasks[0].dependencies?" {
		t.Errorf("of a plan: %+v", err)
	}
}
