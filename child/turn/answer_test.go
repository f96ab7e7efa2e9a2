package turn_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Calls of one answer that share an id were merged: both inputs and results
// bore the id of the second, and the first was never closed.
func TestCallsOfOneAnswerKeepTheirIDs(t *testing.T) {
	const input = `{"seconds":0}`
	start := func(id string) provider.CallStart { return provider.CallStart{ID: id, Name: "sleep"} }
	piece := func(id string) provider.CallInput { return provider.CallInput{ID: id, Fragment: input} }
	whole := func(id string) provider.Call { return call(id, "sleep", input) }
	tests := []struct {
		name         string
		answer       []any
		events       []string
		conversation string
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
			d := conversation.New(nil, conversation.Preamble{ContextWindow: 100_000})
			var events []string
			r := turn.Runner{
				Compactor: turn.Compactor{
					Provider: &script{answers: [][]any{tt.answer, {hello, stop}}}, Model: "m",
					Conversation: d, Journal: &disk{}, Log: zap.NewNop(),
				},
				MaxIterations: 2,
				// One at a time, so that the results come in the order of the calls.
				Tools: tool.NewRegistry([]tool.Tool{sleep.New()}, tool.Options{Parallel: 1}),
				Listener: hears(func(e protocol.AssistantEvent) {
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
				}),
			}
			if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "go"}); got.Stop != protocol.StopCompleted {
				t.Errorf("ended with %s, %v", got.Stop, got.Err)
			}
			if diff := cmp.Diff(tt.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.conversation, describe(d.Messages())); diff != "" {
				t.Errorf("conversation (-want +got):\n%s", diff)
			}
		})
	}
}

// endless is a provider that goes on and on, and says so when it is stopped.
type endless struct {
	next func(i int) provider.Delta
	sent int
}

func (e *endless) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		for ; e.sent < 1_000_000 && yield(e.next(e.sent), nil); e.sent++ {
		}
	}
}

func (*endless) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// An answer without an end is ended, and what came of it kept.
func TestAnAnswerHasALimit(t *testing.T) {
	const most = conversation.MaxAnswer
	piece := strings.Repeat("x", 1<<20)
	tests := []struct {
		name string
		next func(i int) provider.Delta
		sent int // before it was stopped
		want protocol.Message
	}{
		{
			"text", func(int) provider.Delta { return provider.Text{Text: piece} }, 16,
			protocol.Message{Content: strings.Repeat("x", most)},
		},
		{
			"reasoning, then text", func(i int) provider.Delta {
				if i < 10 {
					return provider.Thinking{Text: piece}
				}
				return provider.Text{Text: piece}
			}, 16,
			protocol.Message{Thinking: strings.Repeat("x", 10<<20), Content: strings.Repeat("x", 6<<20)},
		},
		{
			"text, then the input of a call", func(i int) provider.Delta {
				if i == 0 {
					return provider.Text{Text: "so"}
				}
				return provider.CallInput{ID: "c", Fragment: piece}
			}, 16,
			protocol.Message{Content: "so"},
		},
		{"calls", func(i int) provider.Delta {
			if i == 0 {
				return provider.Text{Text: "so"}
			}
			return provider.CallStart{ID: "c", Name: "long"}
		}, most / 512, protocol.Message{Content: "so"}},
		{"whole calls", func(i int) provider.Delta {
			return call("c", "long", `"`+piece+`"`)
		}, 15, protocol.Message{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, journal, open := conversation.New(nil, conversation.Preamble{ContextWindow: 100_000}), &disk{}, map[string]bool{}
				p := &endless{next: tt.next}
				r := turn.Runner{
					Compactor: turn.Compactor{Provider: p, Model: "m", Conversation: d, Journal: journal, Log: zap.NewNop()},
					Tools:     tool.NewRegistry([]tool.Tool{says("r")}, tool.Options{}), MaxIterations: 2,
					Listener: hears(func(e protocol.AssistantEvent) {
						switch e := e.(type) {
						case protocol.ToolcallStart:
							open[e.ToolID] = true
						case protocol.ToolcallResult:
							delete(open, e.ToolID)
						default:
						}
					}),
				}
				if got := r.Run(t.Context(), turn.Input{ID: "1", Message: "go"}); !errors.Is(got.Err, turn.ErrEndless) || got.Stop != protocol.StopError {
					t.Errorf("ended with %s, %v", got.Stop, got.Err)
				}
				if p.sent != tt.sent || len(open) > 0 {
					t.Errorf("it was stopped after %d deltas, want %d; %d calls are open", p.sent, tt.sent, len(open))
				}
				kept := d.Messages()[1]
				if !kept.Interrupted || kept.Content != tt.want.Content || kept.Thinking != tt.want.Thinking {
					t.Errorf("kept %d bytes and %d of reasoning, interrupted %v", len(kept.Content), len(kept.Thinking), kept.Interrupted)
				}
				if saved := journal.records[1].(transcript.Message); !saved.Message.Interrupted || len(saved.Message.Content) != len(tt.want.Content) {
					t.Errorf("the journal has %d bytes", len(saved.Message.Content))
				}
				if next := r.Run(t.Context(), turn.Input{ID: "2", Message: "again"}); errors.Is(next.Err, conversation.ErrTooLarge) {
					t.Errorf("the next turn ended with %v", next.Err)
				}
			})
		})
	}
}
