package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

func user(text string) protocol.Message {
	return protocol.Message{Role: protocol.RoleUser, Content: text}
}

func says(text string) protocol.Message {
	return protocol.Message{Role: protocol.RoleAssistant, Content: text}
}

// toolTurn is a turn with a call and its result.
func toolTurn(id, text string) []protocol.Message {
	return []protocol.Message{
		user(text),
		{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{{ID: id, Name: "t", Input: []byte(`{}`)}}},
		{Role: protocol.RoleTool, ToolCallID: id, Content: text},
		says(text),
	}
}

func TestBreakdownFollowsTheProvider(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{System: strings.Repeat("s", 400), ContextWindow: 1000})
	d.Add(user(strings.Repeat("u", 384)))
	want := protocol.ContextTokens{System: 100, Messages: 100, Total: 200, Budget: 1000, Available: 750}
	if diff := cmp.Diff(want, d.Breakdown()); diff != "" {
		t.Errorf("estimate (-want +got):\n%s", diff)
	}
	whole, err := d.Fit(0)
	if err != nil {
		t.Fatal(err)
	}
	d.RecordAnswer(whole, protocol.TurnUsage{InputTokens: 400, CacheReadInputTokens: 100})
	want = protocol.ContextTokens{System: 200, Messages: 200, Total: 400, Budget: 1000, Available: 750}
	if diff := cmp.Diff(want, d.Breakdown()); diff != "" {
		t.Errorf("calibrated (-want +got):\n%s", diff)
	}
	d.SetModel("other", 2000)
	if got := d.Breakdown(); got.Total != 200 || got.Budget != 2000 {
		t.Errorf("after another model: %+v", got)
	}
}

func TestFit(t *testing.T) {
	turns := append(toolTurn("a", strings.Repeat("x", 400)), toolTurn("b", strings.Repeat("y", 400))...)
	tests := []struct {
		window uint64
		want   int // messages, the last ones; -1 is ErrTooLarge
	}{{10_000, 8}, {500, 4}, {100, -1}}
	for _, tt := range tests {
		d := conversation.New(turns, conversation.Preamble{ContextWindow: tt.window})
		got, err := d.Fit(0)
		if tt.want < 0 {
			if !errors.Is(err, conversation.ErrTooLarge) {
				t.Errorf("window %d: got %d messages, %v", tt.window, len(got.Messages), err)
			}
			continue
		}
		if len(got.Messages) != tt.want || err != nil {
			t.Errorf("window %d: got %d messages, %v, want %d", tt.window, len(got.Messages), err, tt.want)
		}
	}
}

// However a conversation goes, neither fitting nor compacting parts a call
// from its result, and both keep the last message.
func TestPairsStayWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var messages []protocol.Message
		for i := range rapid.IntRange(1, 12).Draw(t, "turns") {
			text := strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "length"))
			if rapid.Bool().Draw(t, "tool") {
				messages = append(messages, toolTurn(fmt.Sprint(i), text)...)
			} else {
				messages = append(messages, user(text), says(text))
			}
		}
		last := messages[len(messages)-1]
		check := func(what string, got []protocol.Message) {
			open := map[string]bool{}
			for _, m := range got {
				for _, c := range m.ToolCalls {
					open[c.ID] = true
				}
				if m.Role == protocol.RoleTool && !open[m.ToolCallID] {
					t.Fatalf("%s: a result without its call", what)
				}
				delete(open, m.ToolCallID)
			}
			if len(open) > 0 {
				t.Fatalf("%s: a call without its result", what)
			}
			if diff := cmp.Diff(last, got[len(got)-1]); diff != "" {
				t.Fatalf("%s: the last message is gone: %s", what, diff)
			}
		}
		d := conversation.New(messages, conversation.Preamble{ContextWindow: rapid.Uint64Range(10, 2000).Draw(t, "window")})
		if fit, err := d.Fit(0); err == nil {
			check("fit", fit.Messages)
			var text, whole uint64
			for _, m := range fit.Messages {
				text += provider.TextBytes(m)
			}
			for _, m := range messages {
				whole += provider.TextBytes(m)
			}
			if fit.TextBytes != text {
				t.Fatalf("the window says that it has %d bytes of text and has %d", fit.TextBytes, text)
			}
			b := d.Breakdown()
			left := len(messages) - len(fit.Messages)
			if shorter := left > 0 || text < whole; shorter != (b.Total > b.Available) {
				t.Fatalf("%d messages and %d bytes are left out of %d tokens with %d available", left, whole-text, b.Total, b.Available)
			}
			before := slices.Clone(fit.Messages)
			d.Add(user("more"))
			if diff := cmp.Diff(before, fit.Messages); diff != "" {
				t.Fatalf("a window that was given out changed: %s", diff)
			}
			last = user("more")
		}
		if old, ok, _ := d.Compactable(conversation.KeepTurns); ok {
			summary := conversation.NewSummary(conversation.SummarizeByRule(old), "", "", time.Unix(0, 0))
			_, after := d.CompactionTokens(len(old), summary)
			d.Compact(len(old), summary)
			check("compact", d.Messages())
			if got := d.Breakdown().Total; got != after {
				t.Fatalf("compaction was to leave %d tokens and left %d", after, got)
			}
		}
	})
}

func TestCutSaysWhyNot(t *testing.T) {
	d := conversation.New([]protocol.Message{user("a"), says("b"), user("c")}, conversation.Preamble{ContextWindow: 1000})
	if _, ok, why := d.Compactable(conversation.KeepTurns); ok || !strings.Contains(why, "too little") {
		t.Errorf("got %v, %q", ok, why)
	}
	d = conversation.New([]protocol.Message{conversation.NewSummary("s", "", "", time.Time{}), user("a"), says("b"), user("c")}, conversation.Preamble{ContextWindow: 1000})
	if _, ok, why := d.Compactable(conversation.KeepTurns); ok || !strings.Contains(why, "since the last summary") {
		t.Errorf("got %v, %q", ok, why)
	}
}

func TestByRule(t *testing.T) {
	first := conversation.SummarizeByRule([]protocol.Message{user("My name is\nAlice"), says("Nice to meet you, Alice!"), user("count"), says("1 2 3")})
	want := "My name is Alice\n(answered: Nice to meet you, Alice!)\ncount\n(answered: 1 2 3)"
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again := conversation.SummarizeByRule([]protocol.Message{conversation.NewSummary(first, "", "", time.Time{}), user("more")})
	if want := first + "\nmore"; again != want {
		t.Errorf("a summary of a summary is %q, want %q", again, want)
	}
	var long []protocol.Message
	for range 1000 {
		long = append(long, user(strings.Repeat("é", 300)))
	}
	if got := conversation.SummarizeByRule(long); len(got) > 8<<10 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("got %d bytes", len(got))
	}
}

// answers is a provider that gives these deltas, or panics without any.
type answers []provider.Delta

func (a answers) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		if len(a) == 0 {
			panic("boom")
		}
		for _, d := range a {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (answers) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

func TestByModel(t *testing.T) {
	stop := provider.Stop{Usage: protocol.TurnUsage{InputTokens: 7}}
	text, usage, err := conversation.SummarizeByModel(t.Context(), answers{provider.Text{Text: " a "}, provider.Text{Text: "b\n"}, stop}, "m", []protocol.Message{user("x")}, 1000)
	if text != "a b" || usage.InputTokens != 7 || err != nil {
		t.Errorf("got %q, %+v, %v", text, usage, err)
	}
	for name, p := range map[string]answers{"silence": {stop}, "a panic": nil} {
		if text, _, err := conversation.SummarizeByModel(t.Context(), p, "m", nil, 1000); err == nil {
			t.Errorf("%s: got %q", name, text)
		}
	}
}

// endless is a provider that never ends.
type endless struct{ piece provider.Delta }

func (e endless) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		for range 1_000_000 {
			if !yield(e.piece, nil) {
				return
			}
		}
	}
}

func (endless) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// spoken answers with these deltas.
type spoken []provider.Delta

func (s spoken) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		for _, d := range s {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (spoken) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// What a service holds back is no summary: the refusal would replace the conversation. One
// that it cuts off says so.
func TestASummaryThatIsNotWhole(t *testing.T) {
	for reason, want := range map[provider.FinishReason]string{
		provider.FinishStop: "All.", provider.FinishLength: "All.\n[the summary was cut off here]", provider.FinishFiltered: "held the summary back",
	} {
		text, usage, err := conversation.SummarizeByModel(t.Context(), spoken{
			provider.Text{Text: "All."}, provider.Stop{Usage: protocol.TurnUsage{InputTokens: 7}, Reason: reason},
		}, "m", nil, 1000)
		if err != nil {
			text = strings.TrimPrefix(err.Error(), "the model's service ")
		}
		if text != want || usage.InputTokens != 7 {
			t.Errorf("%s: got %q, %v, want %q", reason, text, usage, want)
		}
	}
}

func TestASummaryEnds(t *testing.T) {
	piece := strings.Repeat("x", 1000)
	for _, d := range []provider.Delta{
		provider.Text{Text: piece}, provider.Thinking{Text: piece}, provider.CallInput{Fragment: piece}, provider.CallStart{ID: "c"},
	} {
		if _, _, err := conversation.SummarizeByModel(t.Context(), endless{d}, "m", nil, 1000); err == nil || !strings.Contains(err.Error(), "no end") {
			t.Errorf("%T: %v", d, err)
		}
	}
}
