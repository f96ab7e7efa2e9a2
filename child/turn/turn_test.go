package turn_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script gives one answer after another; an error ends its answer, hang
// waits for the end of the turn, and lost is what a try used.
type script struct {
	answers [][]any // provider.Delta, error or hang
	next    int
}

type (
	hang struct{}
	lost protocol.TurnUsage
)

func (s *script) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	answer := s.answers[s.next]
	s.next++
	return func(yield func(provider.Delta, error) bool) {
		for _, step := range answer {
			switch step := step.(type) {
			case hang:
				<-ctx.Done()
				yield(nil, ctx.Err())
				return
			case error:
				yield(nil, step)
				return
			case lost:
				r.Lost.Add(protocol.TurnUsage(step))
			case provider.Delta:
				if !yield(step, nil) {
					return
				}
			}
		}
	}
}

func (*script) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// disk is a journal that is full from the record with that number on.
type disk struct {
	full    int // 0: never
	records []transcript.Record
}

var errFull = errors.New("no space left")

func (d *disk) Append(records ...transcript.Record) error {
	d.records = append(d.records, records...)
	if d.full > 0 && len(d.records) >= d.full {
		return errFull
	}
	return nil
}

func (d *disk) AppendLater(r transcript.Record) error { return d.Append(r) }

func (d *disk) Commit(records ...transcript.Record) error { return d.Append(records...) }

func (d *disk) Partial(string, string, string) {}

var (
	stop  = provider.Stop{Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 1}}
	hello = provider.Text{Text: "hello"}
)

func call(id, name, input string) provider.Call {
	return provider.Call{ToolCall: protocol.ToolCall{ID: id, Name: name, Input: jsontext.Value(input)}}
}

func TestRun(t *testing.T) {
	down := errors.New("the service is down")
	tests := []struct {
		name         string
		answers      [][]any
		full         int
		abort        bool // after a minute
		limit        int
		stop         protocol.StopReason
		err          error
		conversation string // role:text, ! for an error or interruption, =id for calls
		events       string
	}{
		{
			name: "an answer", answers: [][]any{{hello, stop}},
			stop: "completed", conversation: "user:go assistant:hello", events: "text_delta",
		},
		{
			name: "a call and its answer", answers: [][]any{{call("a", "sleep", `{"seconds":0}`), stop}, {hello, stop}},
			stop: "completed", conversation: "user:go assistant:=a tool:a assistant:hello",
			events: "toolcall_start toolcall_input toolcall_result text_delta",
		},
		{
			name: "bad calls are results for the model", answers: [][]any{{call("a", "nothing", ``), call("b", "sleep", `{bad`), stop}, {hello, stop}},
			stop: "completed", conversation: "user:go assistant:=a=b tool:a! tool:b! assistant:hello",
			events: "toolcall_start toolcall_input toolcall_start toolcall_input toolcall_result toolcall_result text_delta",
		},
		{
			name: "ids that repeat are replaced", answers: [][]any{{call("a", "sleep", `{"seconds":0}`), stop}, {call("a", "sleep", `{"seconds":0}`), stop}, {call("", "sleep", `{"seconds":0}`), stop}, {hello, stop}},
			stop: "completed", conversation: "user:go assistant:=a tool:a assistant:=call_2 tool:call_2 assistant:=call_3 tool:call_3 assistant:hello",
			events: "toolcall_start toolcall_input toolcall_result toolcall_start toolcall_input toolcall_result toolcall_start toolcall_input toolcall_result text_delta",
		},
		{
			name: "the iteration limit", limit: 1, answers: [][]any{{call("a", "sleep", `{"seconds":0}`), stop}},
			stop: "max_iterations", conversation: "user:go assistant:=a tool:a", events: "toolcall_start toolcall_input toolcall_result",
		},
		{
			name: "a failure keeps what was said", answers: [][]any{{hello, down}},
			stop: "error", err: down, conversation: "user:go assistant:hello!", events: "text_delta",
		},
		{
			name: "a failure in a call", answers: [][]any{{provider.CallStart{ID: "a", Name: "sleep"}, provider.CallInput{ID: "a", Fragment: `{"sec`}, down}},
			stop: "error", err: down, conversation: "user:go", events: "toolcall_start toolcall_input_delta toolcall_result",
		},
		{
			name: "a failure after a call", answers: [][]any{{call("a", "sleep", `{"seconds":0}`), down}},
			stop: "error", err: down, conversation: "user:go assistant:=a! tool:a!", events: "toolcall_start toolcall_input toolcall_result",
		},
		{
			name: "an answer without its end", answers: [][]any{{hello}},
			stop: "error", err: turn.ErrIncomplete, conversation: "user:go assistant:hello!", events: "text_delta",
		},
		{
			name: "abort of a silent model", abort: true, answers: [][]any{{hello, hang{}}},
			stop: "aborted", conversation: "user:go assistant:hello!", events: "text_delta",
		},
		{
			name: "abort of a tool", abort: true, answers: [][]any{{call("a", "sleep", `{"seconds":3600}`), stop}},
			stop: "aborted", conversation: "user:go assistant:=a tool:a!", events: "toolcall_start toolcall_input toolcall_result",
		},
		{
			name: "a full disk before the answer", full: 1, answers: [][]any{{hello, stop}},
			stop: "error", err: errFull, conversation: "user:go",
		},
		{
			name: "a full disk after a call", full: 2, answers: [][]any{{call("a", "sleep", `{"seconds":0}`), stop}},
			stop: "error", err: errFull, conversation: "user:go assistant:=a tool:a!", events: "toolcall_start toolcall_input toolcall_result",
		},
		{
			name: "text that is not UTF-8", answers: [][]any{{provider.Text{Text: "h\xffi"}, stop}},
			stop: "completed", conversation: "user:go assistant:h\uFFFDi", events: "text_delta",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.abort {
					timer := time.AfterFunc(time.Minute, cancel)
					defer timer.Stop()
				}
				d := conversation.New(nil, conversation.Preamble{ContextWindow: 100_000})
				journal := &disk{full: tt.full}
				var events listener
				r := turn.Runner{
					Compactor: turn.Compactor{
						Provider: &script{answers: tt.answers}, Model: "m",
						Conversation: d, Journal: journal, Log: zap.NewNop(),
					},
					MaxIterations: max(tt.limit, 50-49*tt.limit),
					Tools:         tool.NewRegistry([]tool.Tool{sleep.New()}, tool.Options{}),
					Listener:      &events,
				}
				begin := time.Now()
				got := r.Run(ctx, turn.Input{ID: "1", Message: "go"})
				if got.Stop != tt.stop || !errors.Is(got.Err, tt.err) {
					t.Errorf("got %s, %v, want %s, %v", got.Stop, got.Err, tt.stop, tt.err)
				}
				if took := time.Since(begin); tt.abort && took > time.Minute+100*time.Millisecond {
					t.Errorf("the abort took %v", took-time.Minute)
				}
				if diff := cmp.Diff(tt.conversation, describe(d.Messages())); diff != "" {
					t.Errorf("conversation (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.events, strings.Join(events.names, " ")); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				var saved []protocol.Message
				for _, record := range journal.records {
					saved = append(saved, record.(transcript.Message).Message)
				}
				if diff := cmp.Diff(d.Messages(), saved); diff != "" {
					t.Errorf("the journal says something else (-conversation +journal):\n%s", diff)
				}
			})
		})
	}
}

func describe(messages []protocol.Message) string {
	var all []string
	for _, m := range messages {
		text := string(m.Role) + ":"
		if m.Role == protocol.RoleTool {
			text += m.ToolCallID
		} else {
			text += m.Content
		}
		for _, c := range m.ToolCalls {
			text += "=" + c.ID
		}
		if m.IsError || m.Interrupted {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// listener is a [turn.Listener] that counts what it is told.
type listener struct {
	names       []string // of the events
	compactions int
}

func (l *listener) Emit(e protocol.AssistantEvent) { l.names = append(l.names, e.Name()) }
func (l *listener) Compacted()                     { l.compactions++ }

// hears is a [turn.Listener] that hears the steps of a turn.
type hears func(e protocol.AssistantEvent)

func (h hears) Emit(e protocol.AssistantEvent) { h(e) }
func (hears) Compacted()                       {}

// digests gives each image its digest for bytes.
type digests struct{}

func (digests) Get(i protocol.Image) ([]byte, error) { return []byte(i.SHA256), nil }
