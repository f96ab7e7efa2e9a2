package scripted_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/protocol"
)

// What a provider remembers of the conversation it saw last only saves work:
// it says what one that sees the messages for the first time says, whether the
// conversation grew, was cut, or is another one.
func TestMemoryChangesNothing(t *testing.T) {
	play := []byte(`{"turns":[{"match":"red","steps":[{"text":"matched"}]},{"steps":[{"text":"one"}]},{"steps":[{"text":"two"}]}],"after":"repeat"}`)
	for name, o := range map[string]scripted.Options{"offline": {}, "scenario": {Scenario: play}} {
		fresh := func() provider.Provider {
			p, err := scripted.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := fresh()
				conversations := make([][]protocol.Message, 2)
				for range rapid.IntRange(1, 20).Draw(t, "turns") {
					which := rapid.IntRange(0, 1).Draw(t, "conversation")
					messages := conversations[which]
					if rapid.IntRange(0, 5).Draw(t, "cut") == 0 && len(messages) > 2 {
						messages = messages[2:]
					}
					messages = append(messages, user(rapid.SampledFrom([]string{
						"My colour is red", "MY colour is blue; my cat is Tom", "read x", "echo a", "what is my colour?", "summarize",
					}).Draw(t, "prompt")))
					r := request(messages[:len(messages):len(messages)]...)
					got, want := answered(t.Context(), p, r), answered(t.Context(), fresh(), r)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("after %d messages (-want +got):\n%s", len(messages), diff)
					}
					call := protocol.ToolCall{ID: fmt.Sprintf("call_%d", len(messages)), Name: "read_file"}
					conversations[which] = append(messages, protocol.Message{
						Role: protocol.RoleAssistant, Content: "ok", ToolCalls: []protocol.ToolCall{call},
					})
				}
			})
		})
	}
}

func answered(ctx context.Context, p provider.Provider, r provider.Request) []string {
	var all []string
	for delta, err := range p.Stream(ctx, r) {
		if stop, ok := delta.(provider.Stop); ok {
			stop.Usage.Model = nil
			delta = stop
		}
		all = append(all, fmt.Sprintf("%+v %v", delta, err))
	}
	return all
}

func TestMemoryIsSafeForConcurrentUse(t *testing.T) {
	p, ctx := offline(t), t.Context()
	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() {
			for i := range 50 {
				r := request(user(fmt.Sprintf("My number is %d", i)), said("ok"), user("What is my number?"))
				if got, want := fmt.Sprint(answered(ctx, p, r)), fmt.Sprintf("{Text:%d.}", i); !strings.Contains(got, want) {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	askers.Wait()
}
