package openai_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
)

// events is a stream of one choice that ends well; each delta is an event.
func events(deltas ...string) []byte {
	var b strings.Builder
	for _, delta := range deltas {
		b.WriteString(`data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n")
	}
	b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}` + "\n\ndata: [DONE]\n\n")
	return []byte(b.String())
}

func piece(members string) string { return `{"tool_calls":[{` + members + `}]}` }

// Every call has an id of its own, whatever the service gives; and one without
// a name is a call all the same.
func TestCalls(t *testing.T) {
	start := func(id, name string) provider.CallStart { return provider.CallStart{ID: id, Name: name} }
	input := func(id, fragment string) provider.CallInput { return provider.CallInput{ID: id, Fragment: fragment} }
	whole := func(id, name, input string) provider.Call {
		return provider.Call{ToolCall: protocol.ToolCall{ID: id, Name: name, Input: jsontext.Value(input)}}
	}
	end := provider.Stop{Reason: provider.FinishToolCalls, Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 5}}
	for _, tt := range []struct {
		name   string
		deltas []string
		want   []provider.Delta
	}{
		{
			"one id for two calls",
			[]string{
				piece(`"index":0,"id":"c","function":{"name":"a","arguments":"{}"}`),
				piece(`"index":1,"id":"c","function":{"name":"b","arguments":"[1"}`),
				piece(`"index":1,"function":{"arguments":"]"}`),
				piece(`"index":0,"id":"c","function":{"arguments":" "}`),
			},
			[]provider.Delta{
				start("c", "a"), input("c", "{}"), start("call_1", "b"), input("call_1", "[1"), input("call_1", "]"), input("c", " "),
				whole("c", "a", "{} "), whole("call_1", "b", "[1]"), end,
			},
		},
		{
			"an id that was made up already",
			[]string{
				piece(`"index":0,"function":{"name":"a"}`), piece(`"index":1,"id":"call_0","function":{"name":"b"}`),
				piece(`"index":1,"id":"call_0","function":{"arguments":"{}"}`),
			},
			[]provider.Delta{
				start("call_0", "a"), start("call_1", "b"), input("call_1", "{}"),
				whole("call_0", "a", "{}"), whole("call_1", "b", "{}"), end,
			},
		},
		{
			"a name that comes late",
			[]string{piece(`"index":0,"id":"c","function":{"arguments":"{"}`), piece(`"index":0,"function":{"name":"a","arguments":"}"}`)},
			[]provider.Delta{start("c", "a"), input("c", "{}"), whole("c", "a", "{}"), end},
		},
		{
			"a name that never comes",
			[]string{piece(`"index":0,"id":"c","function":{"name":"","arguments":"{}"}`)},
			[]provider.Delta{start("c", ""), input("c", "{}"), whole("c", "", "{}"), end},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream(events(tt.deltas...))), nil), hello)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Services refuse a conversation with an empty name of a function, so a call
// without one would spoil the whole session.
func TestCallWithoutNameGoesBack(t *testing.T) {
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
	r := hello
	r.Messages = append(r.Messages[:1:1], protocol.Message{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{
		{ID: "c", Input: jsontext.Value("{}")},
	}})
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), r); err != nil {
		t.Fatal(err)
	}
	if _, body := s.Request(0); !strings.Contains(string(body), `"name":"unnamed"`) {
		t.Errorf("asked %s", body)
	}
}

// A surrogate pair that is split over two events is one character, wherever it
// stands; half of one is U+FFFD.
func TestSplitSurrogates(t *testing.T) {
	got, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream(events(
		`{"content":"a\ud83d","reasoning":"\ud83d"}`, `{"content":"","reasoning":"\ude00."}`, `{"content":"\ude00b\\\\ud83d"}`,
		piece(`"index":0,"id":"c","function":{"name":"x","arguments":"\"\uD83D"}`),
		piece(`"index":0,"function":{"arguments":"\uDE00\""}`),
		`{"content":"\ud83d"}`, `{"content":"c\ud83d"}`,
	))), nil), hello)
	if err != nil {
		t.Fatal(err)
	}
	want := []provider.Delta{
		provider.Text{Text: "a"},
		provider.Thinking{Text: "😀."},
		provider.Text{Text: `😀b\\ud83d`},
		provider.CallStart{ID: "c", Name: "x"},
		provider.CallInput{ID: "c", Fragment: `"`},
		provider.CallInput{ID: "c", Fragment: `😀"`},
		provider.Text{Text: "\uFFFDc"},
		provider.Text{Text: "\uFFFD"},
		provider.Call{ToolCall: protocol.ToolCall{ID: "c", Name: "x", Input: jsontext.Value(`"😀"`)}},
		provider.Stop{Reason: provider.FinishToolCalls, Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 5}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A service can call its model anything; the name goes into every agent_end.
func TestModelNameIsCut(t *testing.T) {
	long := strings.Repeat("m", 2<<20)
	body := `data: {"model":"` + long + `","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n"
	got, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream([]byte(body))), nil), hello)
	if err != nil {
		t.Fatal(err)
	}
	if name := got[len(got)-1].(provider.Stop).Usage.Model; name == nil || *name != long[:protocol.MaxModelName] {
		t.Errorf("the model's name is %.300v", name)
	}
}
