package main_test

import (
	"fmt"
	"testing"

	"github.com/tidwall/gjson"
)

// TestErrorsOfAService asks a service that refuses in many ways: each is told by a type and a
// code of its own, also to the one that asks again of a later server.
func TestErrorsOfAService(t *testing.T) {
	t.Parallel()
	s := startServer(t, newVendor(t))
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	refusals := []struct {
		prompt, kind string
		code         int64
	}{
		{"parrot 429 times", "RATE_LIMITED", -32002},
		{"refuse", "CREDENTIALS", -32003},
		{"parrot 402 times", "BUDGET_EXCEEDED", -32001},
		{"parrot 503 times", "UNREACHABLE", -32001},
		{"fail", "EXECUTION_ERROR", -32603},
	}
	ask := func(when string) {
		t.Helper()
		for i, r := range refusals {
			answer := s.call("/agent/a", "send", fmt.Sprintf(`{"content":%q,"request_id":"r%d"}`, r.prompt, i))
			failed := gjson.Get(answer, "error")
			if failed.Get("data.type").Str != r.kind || failed.Get("code").Int() != r.code || failed.Get("data.recovery_suggestions.#").Int() == 0 {
				t.Errorf("%s: %s: got %s, want %s, %d", when, r.prompt, answer, r.kind, r.code)
			}
			if replayed := failed.Get("data.replayed").Bool(); replayed != (when != "first") {
				t.Errorf("%s: %s: replayed %t", when, r.prompt, replayed)
			}
		}
	}
	ask("first")
	ask("again")
	s.end()
	s.again()
	ask("of a later server")
	if answer := s.send("a", "echo"); gjson.Get(answer, "result.stop_reason").Str != "completed" {
		t.Errorf("the agent afterwards: %s", answer)
	}
	s.end()
}
