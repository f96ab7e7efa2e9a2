package mcpserve

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/jsonrpc"
)

// What is suggested names tools, and verbs for what no tool does.
func TestExplained(t *testing.T) {
	b := &bridge{app: cli.New(cli.Options{Name: "nexus", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})}
	for _, tt := range []struct{ kind, said, want string }{
		{"AGENT_NOT_FOUND", "See list_agents, or create the agent with create_agent.", "See status, or create the agent with create_agent."},
		{"AGENT_EXISTS", `Use the agent that is there, or destroy it first.`, `Use the agent that is there (create_agent with if_exists "use" finds it), or take another name.`},
		{"AGENT_FAILED", "Or end it with destroy_agent.", "Or end it with nexus destroy."},
		{"AGENT_BUSY", "Send it again later, or with when_busy queue or steer.", "Send it again later, or with when_busy queue or steer."},
		{"X", "See list_agents, then the same run_plan with request_id r.", "See status, then the same run_plan with request_id r."},
		{"TIMEOUT", "Raise limits.turn_s of the agent by set_limits.", `Raise limits.turn_s of the agent by nexus call set_limits --agent AGENT '{"limits":{"turn_s":N}}'.`},
	} {
		err := b.explained(t.Context(), &client.RPCError{Code: -1, Message: "no", Data: jsonrpc.ErrorData{Type: tt.kind, RecoverySuggestions: []string{tt.said}}})
		if want := tt.kind + " (-1): no\n" + tt.want; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.explained(ctx, fmt.Errorf("call send: read the stream: %w", context.Cause(ctx))); err.Error() != "the call was cancelled" {
		t.Errorf("a call that the client cancels fails with %q", err)
	}
}
