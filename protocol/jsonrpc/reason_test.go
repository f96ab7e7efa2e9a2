package jsonrpc_test

import (
	"testing"

	"nexus.internal/protocol/jsonrpc"
)

// Neither the message nor the details are lost or told twice.
func TestReason(t *testing.T) {
	for _, test := range []struct{ message, details, want string }{
		{"provider local cannot be reached", "", "provider local cannot be reached"},
		{"Execution failed", "it crashed", "Execution failed: it crashed"},
		{"Invalid cwd: /x", "/x", "Invalid cwd: /x"},
		{"it crashed", "it crashed: signal", "it crashed: signal"},
		{"", "it crashed", "it crashed"},
	} {
		if got := jsonrpc.Reason(test.message, test.details); got != test.want {
			t.Errorf("%q, %q: got %q, want %q", test.message, test.details, got, test.want)
		}
	}
}
