package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// Whatever a model says, thinks and asks for, and a tool puts out, nothing of it acts on the terminal.
func TestNothingInATurnActsOnTheTerminal(t *testing.T) {
	for name, bad := range fixtures.Hostile() {
		text := strings.ToValidUTF8(bad, "\ufffd")
		input, err := json.Marshal(map[string]string{"command": text})
		if err != nil {
			t.Fatal(err)
		}
		step := func(e protocol.AssistantEvent) protocol.Event { return protocol.MessageUpdate{Event: e} }
		events := []protocol.Event{
			protocol.TurnStart{TurnID: "1"},
			step(protocol.ThinkingDelta{Delta: bad + "\n"}),
			step(protocol.TextDelta{Delta: "# " + bad + "\n\n```" + bad + "\n" + bad + "\n```\n\n- **" + bad + "** `" + bad + "`\n"}),
			step(protocol.ToolcallStart{ToolID: "a", ToolName: bad}),
			step(protocol.ToolcallStart{ToolID: "b", ToolName: "shell"}),
			step(protocol.ToolcallInput{ToolID: "b", Input: input}),
			step(protocol.ToolcallOutputDelta{ToolID: "b", Delta: bad}),
			step(protocol.ToolcallResult{ToolID: "b", Result: bad, IsError: true}),
			step(protocol.Retry{Reason: bad, Attempt: 1, MaxAttempts: 2}),
			step(protocol.Fallback{Model: bad, Reason: bad}),
			protocol.SubagentStart{AgentName: bad, TaskPreview: bad},
			protocol.SubagentDone{AgentName: bad, ResultPreview: bad},
			protocol.TurnEnd{TurnID: "1", Outcome: bad, Error: bad},
			protocol.AgentState{State: "failed", Reason: bad},
		}
		for _, verbose := range []bool{false, true} {
			shown := transcript{look: look{plain: true, verbose: verbose}, now: time.Now}
			var out []string
			for _, event := range events {
				out = append(append(out, shown.apply(event)...), shown.pending(1000)...)
			}
			all := strings.Join(append(out, shown.unfold()...), "\n")
			if acts := fixtures.ActsOn(all); acts != "" || !strings.Contains(all, "shell") {
				t.Errorf("%s: a terminal acts on %.200q of\n%.2000q", name, acts, all)
			}
		}
	}
}
