package turn_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"nexus.internal/child/dialog"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
)

// Calls of one answer that share an id were merged: both inputs and results
// bore the id of the second, and the first was never closed.
func TestCallsOfOneAnswerKeepTheirIDs(t *testing.T) {
	const input = `{"seconds":0}`
	start := func(id string) provider.CallStart { return provider.CallStart{ID: id, Name: "sleep"} }
	piece := func(id string) provider.CallInput { return provider.CallInput{ID: id, Fragment: input} }
	whole := func(id string) provider.Call { return call(id, "sleep", input) }
	tests := []struct {
		name   string
		answer []any
		events []string
		dialog string
	}{
		{
			"whole at the end",
			[]any{start("c"), piece("c"), start("c"), piece("c"), whole("c"), whole("c"), stop},
			[]string{"start c", "piece c", "start call_2", "piece call_2", "input c", "input call_2", "result c", "result call_2"},
			"user:go assistant:=c=call_2 tool:c tool:call_2 assistant:hello",
		},
		{
			"one after the other",
			[]any{start("c"), whole("c"), start("c"), piece("c"), whole("c"), stop},
			[]string{"start c", "input c", "start call_2", "piece call_2", "input call_2", "result c", "result call_2"},
			"user:go assistant:=c=call_2 tool:c tool:call_2 assistant:hello",
		},
		{
			"without a start",
			[]any{whole("c"), whole("c"), stop},
			[]string{"start c", "input c", "start call_2", "input call_2", "result c", "result call_2"},
			"user:go assistant:=c=call_2 tool:c tool:call_2 assistant:hello",
		},
		{
			"without a name",
			[]any{call("c", "", input), stop},
			[]string{"start c", "input c", "result c"},
			"user:go assistant:=c tool:c! assistant:hello",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := dialog.New(nil, dialog.Frame{Window: 100_000})
			var events []string
			r := turn.Runner{
				Compactor: turn.Compactor{
					Provider: &script{answers: [][]any{tt.answer, {hello, stop}}}, Model: "m",
					Dialog: d, Journal: &disk{}, Log: zap.NewNop(), Now: time.Now,
				},
				MaxIterations: 2,
				// One at a time, so that the results come in the order of the calls.
				Tools: tool.NewRegistry([]tool.Tool{sleep.New()}, tool.Options{Parallel: 1}),
				Emit: func(e protocol.AssistantEvent) {
					switch e := e.(type) {
					case protocol.ToolcallStart:
						events = append(events, "start "+e.ToolID)
					case protocol.ToolcallInputDelta:
						events = append(events, "piece "+e.ToolID)
					case protocol.ToolcallInput:
						events = append(events, "input "+e.ToolID)
					case protocol.ToolcallResult:
						events = append(events, "result "+e.ToolID)
					default:
					}
				},
			}
			if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "go"}); got.Stop != protocol.StopCompleted {
				t.Errorf("ended with %s, %v", got.Stop, got.Err)
			}
			if diff := cmp.Diff(tt.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.dialog, describe(d.Messages())); diff != "" {
				t.Errorf("dialog (-want +got):\n%s", diff)
			}
		})
	}
}
