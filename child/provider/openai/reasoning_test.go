package openai_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// said is the message that deltas make.
func said(deltas []provider.Delta) protocol.Message {
	m := protocol.Message{Role: protocol.RoleAssistant}
	for _, delta := range deltas {
		switch delta := delta.(type) {
		case provider.Text:
			m.Content += delta.Text
		case provider.Thinking:
			m.Thinking += delta.Text
		case provider.ThinkingSignature:
			m.ThinkingSignature = delta.Text
		case provider.Call:
			m.ToolCalls = append(m.ToolCalls, delta.ToolCall)
		}
	}
	return m
}

// reasonedWith is the signature of an answer of hello's model that has reasoning
// and text alone.
func reasonedWith(kind string, thinking, text int, opaque string) provider.ThinkingSignature {
	if opaque != "" {
		opaque = fmt.Sprintf(`,"opaque":%q`, opaque)
	}
	return provider.ThinkingSignature{Text: fmt.Sprintf(
		`{"model":"gpt-4.1-mini","blocks":[{"kind":%q,"bytes":%d%s},{"kind":"text","bytes":%d}]}`, kind, thinking, opaque, text,
	)}
}

// loop is a conversation in which the model waits for the result of the call
// that an answer ends with.
func loop(answer protocol.Message) provider.Request {
	return provider.Request{Model: hello.Model, Messages: []protocol.Message{
		{Role: protocol.RoleUser, Content: "read größe.txt"},
		answer,
		{Role: protocol.RoleTool, ToolCallID: answer.ToolCalls[0].ID, Content: "1,80 m"},
	}}
}

// answered asks, and gives the answer as a message.
func answered(t *testing.T, pieces ...[]byte) protocol.Message {
	t.Helper()
	got, err := httpapitest.Collect(t.Context(), acme(t, httpapitest.Serve(t, httpapitest.Stream(pieces...)), nil), hello)
	if err != nil {
		t.Fatal(err)
	}
	return said(got)
}

// asked is the body of a request that goes well.
func asked(t *testing.T, r provider.Request) []byte {
	t.Helper()
	s := httpapitest.Serve(t, httpapitest.Stream(recorded(t, "text.sse")))
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), r); err != nil {
		t.Fatal(err)
	}
	_, body := s.Request(0)
	return body
}

// Reasoning goes back within a loop of calls as it came, however it was cut up.
func TestReasoningGoesBack(t *testing.T) {
	for _, tt := range []struct{ stream, golden string }{
		{"deepseek-tools.sse", "reasoning-content.json"},
		{"openrouter-tools.sse", "reasoning-details.json"},
	} {
		t.Run(tt.stream, func(t *testing.T) {
			whole := recorded(t, tt.stream)
			answer := answered(t, whole)
			if diff := cmp.Diff(answer, answered(t, httpapitest.ByteByByte(whole)...)); diff != "" {
				t.Errorf("-whole +byte by byte\n%s", diff)
			}
			fixtures.Golden(t, "providers/openai/"+tt.golden, httpapitest.Pretty(t, asked(t, loop(answer))))
		})
	}
}

// Reasoning goes to nobody but the model it came from, and not with a message
// that is not what it was.
func TestReasoningStaysHere(t *testing.T) {
	for _, stream := range []string{"deepseek-tools.sse", "openrouter-tools.sse"} {
		answer := answered(t, recorded(t, stream))
		for _, tt := range []struct {
			name   string
			change func(*provider.Request, *protocol.Message)
		}{
			{"another model", func(r *provider.Request, _ *protocol.Message) { r.Model = "gpt-4.1" }},
			{"interrupted", func(_ *provider.Request, m *protocol.Message) { m.Interrupted = true }},
			{"not signed", func(_ *provider.Request, m *protocol.Message) { m.ThinkingSignature = "" }},
			{"no blocks", func(_ *provider.Request, m *protocol.Message) { m.ThinkingSignature = "EqQB" }},
			{"other text", func(_ *provider.Request, m *protocol.Message) { m.Content += "!" }},
			{"other reasoning", func(_ *provider.Request, m *protocol.Message) { m.Thinking = m.Thinking[1:] }},
			{"other calls", func(_ *provider.Request, m *protocol.Message) { m.ToolCalls = append(m.ToolCalls, m.ToolCalls[0]) }},
			{"of another vendor", func(_ *provider.Request, m *protocol.Message) {
				m.ThinkingSignature = strings.NewReplacer("reasoning_content", "thinking", "reasoning_details", "thinking").Replace(m.ThinkingSignature)
			}},
			{"details that are no array", func(_ *provider.Request, m *protocol.Message) {
				m.ThinkingSignature = strings.NewReplacer(`"opaque":"[`, `"opaque":"`, `reasoning_content"`, `reasoning_details","opaque":"{}"`).Replace(m.ThinkingSignature)
			}},
		} {
			t.Run(stream+", "+tt.name, func(t *testing.T) {
				changed := answer
				r := loop(changed)
				tt.change(&r, &changed)
				r.Messages[1] = changed
				if body := asked(t, r); bytes.Contains(body, []byte("reasoning")) || !bytes.Contains(body, []byte("I look.")) {
					t.Errorf("asked %s", body)
				}
			})
		}
	}
}

// A service that refuses reasoning is asked once more without it, and no more.
func TestReasoningRefused(t *testing.T) {
	request := loop(answered(t, recorded(t, "openrouter-tools.sse")))
	for _, tt := range []struct {
		name    string
		status  int
		message string
		asked   int
	}{
		{"by the service", 400, `{"error":{"message":"property 'reasoning_details' is unsupported"}}`, 2},
		{
			"by the service behind", 400,
			`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"message\":\"messages.1.content.0: Invalid signature\"}"}}}`, 2,
		},
		{"for something else", 400, `{"error":{"message":"bad schema of a tool"}}`, 1},
		{"with another status", 403, `{"error":{"message":"no reasoning for you"}}`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refusal := httpapitest.Status(tt.status, tt.message)
			s := httpapitest.Serve(t, refusal, httpapitest.Stream(recorded(t, "text.sse")))
			got, err := httpapitest.Collect(t.Context(), acme(t, s, nil), request)
			if s.Asked() != tt.asked {
				t.Fatalf("asked %d times, want %d; error %v", s.Asked(), tt.asked, err)
			}
			if tt.asked == 1 {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if diff := cmp.Diff(textDeltas, got); err != nil || diff != "" {
				t.Errorf("error %v, -want +got\n%s", err, diff)
			}
			_, first := s.Request(0)
			_, second := s.Request(1)
			if !bytes.Contains(first, []byte("reasoning_details")) || bytes.Contains(second, []byte("reasoning")) {
				t.Errorf("asked %s\nthen %s", first, second)
			}
			s = httpapitest.Serve(t, refusal, refusal)
			if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), request); err == nil || s.Asked() != 2 {
				t.Errorf("refused twice: asked %d times, error %v", s.Asked(), err)
			}
		})
	}
	// Where there was none, a refusal is an error like any other.
	s := httpapitest.Serve(t, httpapitest.Status(400, `{"error":{"message":"the reasoning_content must be passed back"}}`))
	if _, err := httpapitest.Collect(t.Context(), acme(t, s, nil), hello); err == nil {
		t.Error("no error")
	}
}

// What is made of fragments; "" says that nothing goes back.
func TestDetails(t *testing.T) {
	many := make([]string, 1025)
	for i := range many {
		many[i] = fmt.Sprintf(`[{"index":%d}]`, i)
	}
	for _, tt := range []struct {
		name      string
		fragments []string
		want      string
	}{
		{"none", []string{`null`, `[]`}, ""},
		{"whole", []string{`[{"type":"x","index":0,"of":{"any":["shape",1.50,null]}}]`}, `[{"index":0,"of":{"any":["shape",1.50,null]},"type":"x"}]`},
		{"indexes that alternate", []string{
			`[{"type":"t","index":0,"text":"a"},{"type":"t","index":1,"text":"1"}]`, `[{"type":"t","index":0,"text":"b"}]`,
			`[{"type":"t","index":1,"text":"2"}]`,
		}, `[{"index":0,"text":"ab","type":"t"},{"index":1,"text":"12","type":"t"}]`},
		{"types that share an index", []string{
			`[{"type":"t","index":0,"text":"a"},{"type":"e","index":0,"data":"x"}]`, `[{"type":"t","index":0,"text":"b"}]`,
		}, `[{"index":0,"text":"ab","type":"t"},{"data":"x","index":0,"type":"e"}]`},
		{"a signature that comes last", []string{
			`[{"type":"t","index":0,"text":"a","signature":null,"id":null}]`, `[{"type":"t","index":0,"text":null,"signature":"s","id":"i"}]`,
			`[{"type":"t","index":0,"signature":""}]`,
		}, `[{"id":"i","index":0,"signature":"s","text":"a","type":"t"}]`},
		{
			"two signatures",
			[]string{`[{"index":0,"text":"a","signature":"s"}]`, `[{"index":0,"text":"b","signature":"t"}]`},
			`[{"index":0,"signature":"s","text":"a"},{"index":0,"signature":"t","text":"b"}]`,
		},
		{
			"without an index",
			[]string{`[{"type":"t","text":"a"}]`, `[{"type":"t","text":"b"}]`, `[{"type":"e","data":"x"}]`, `[{"type":"t","text":"c"}]`},
			`[{"text":"ab","type":"t"},{"data":"x","type":"e"},{"text":"c","type":"t"}]`,
		},
		{"text that is none", []string{`[{"index":0,"text":7}]`}, `[{"index":0,"text":7}]`},
		{"half a pair", []string{`[{"index":0,"text":"a\ud83d"}]`}, `[{"index":0,"text":"a` + "\uFFFD" + `"}]`},
		{"an object", []string{`{"index":0,"text":"a"}`}, ""},
		{"text", []string{`"a"`}, ""},
		{"an element that is no object", []string{`[{"index":0,"text":"a"}]`, `[7]`, `[{"index":0,"text":"b"}]`}, ""},
		{"a member twice", []string{`[{"index":0,"text":"a","text":"b"}]`}, ""},
		{"half a pair in another member", []string{`[{"index":0,"data":"\ud83d"}]`}, ""},
		{"too many", many, ""},
		{"too large", []string{`[{"index":0,"data":"` + strings.Repeat("x", 200<<10) + `"}]`, `[{"index":1,"data":"` + strings.Repeat("x", 60<<10) + `"}]`}, ""},
		{"too large with its escapes", []string{`[{"index":0,"text":"` + strings.Repeat(`\n`, 100<<10) + `"}]`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			deltas := make([]string, len(tt.fragments))
			for i, fragment := range tt.fragments {
				deltas[i] = `{"reasoning_details":` + fragment + `}`
			}
			deltas = append(deltas, piece(`"index":0,"id":"c","function":{"name":"a","arguments":"{}"}`))
			answer := answered(t, events(deltas...))
			got := gjson.GetBytes(asked(t, loop(answer)), "messages.1.reasoning_details").Raw
			if got != tt.want || (answer.ThinkingSignature == "") != (tt.want == "") {
				t.Errorf("sent back %.300s, want %s", got, tt.want)
			}
		})
	}
}

// DeepSeek wants reasoning_content back with a call though it was empty, and
// takes an answer without it for one that was tampered with.
func TestEmptyReasoningGoesBack(t *testing.T) {
	call := piece(`"index":0,"id":"c","function":{"name":"a","arguments":"{}"}`)
	answer := answered(t, events(`{"reasoning_content":""}`, call))
	if got := gjson.GetBytes(asked(t, loop(answer)), "messages.1.reasoning_content"); got.Raw != `""` {
		t.Errorf("sent back %q", got.Raw)
	}
	for _, deltas := range [][]string{{call}, {`{"reasoning_content":null}`, call}, {`{"reasoning_content":["x"]}`, call}, {`{"reasoning_content":"","content":"x"}`}} {
		if answer := answered(t, events(deltas...)); answer.ThinkingSignature != "" {
			t.Errorf("%s is signed %s", deltas, answer.ThinkingSignature)
		}
	}
}

// A long answer in small pieces fits; its fragments are larger than what they
// make by far.
func TestLongDetails(t *testing.T) {
	const pieces = 15_000
	text := strings.Repeat("think ", pieces)
	deltas := make([]string, 0, pieces+1)
	for range pieces {
		deltas = append(deltas, `{"reasoning":"think ","reasoning_details":[{"type":"reasoning.text","text":"think ","signature":null,"id":null,"index":0}]}`)
	}
	deltas = append(deltas, piece(`"index":0,"id":"c","function":{"name":"a","arguments":"{}"}`))
	answer := answered(t, events(deltas...))
	got := gjson.GetBytes(asked(t, loop(answer)), "messages.1.reasoning_details.0.text").Str
	if answer.Thinking != text || got != text {
		t.Errorf("%d bytes of %d went back", len(got), len(text))
	}
}

// Gemini signs its reasoning in its calls, and refuses calls that come back without.
func TestExtraContent(t *testing.T) {
	const signed = `{"google":{"thought_signature":"sig=="}}`
	stream := events(
		`{"reasoning":"hm","tool_calls":[{"index":0,"id":"a","extra_content":`+signed+`,"function":{"name":"x","arguments":"{}"}}]}`,
		`{"tool_calls":[{"index":1,"id":"b","function":{"name":"y","arguments":"{}"}}]}`,
	)
	s := httpapitest.Serve(t, httpapitest.Stream(stream), httpapitest.Stream(stream), httpapitest.Stream(stream))
	p := acme(t, s, nil)
	got, err := httpapitest.Collect(t.Context(), p, hello)
	if err != nil {
		t.Fatal(err)
	}
	answer := protocol.Message{Role: protocol.RoleAssistant, Thinking: "hm", ToolCalls: []protocol.ToolCall{
		{ID: "a", Name: "x", Input: jsontext.Value("{}")}, {ID: "b", Name: "y", Input: jsontext.Value("{}")},
	}}
	for _, d := range got {
		if d, ok := d.(provider.ThinkingSignature); ok {
			answer.ThinkingSignature = d.Text
		}
	}
	r := hello
	r.Messages = append(slices.Clone(r.Messages), answer)
	for i, want := range []string{signed, ""} {
		if i == 1 { // another model's
			r.Model = "other"
		}
		if _, err := httpapitest.Collect(t.Context(), p, r); err != nil {
			t.Fatal(err)
		}
		_, body := s.Request(1 + i)
		calls := gjson.GetBytes(body, "messages.1.tool_calls")
		if calls.Get("0.extra_content").Raw != want || calls.Get("1.extra_content").Exists() || calls.Get("1.id").Str != "b" {
			t.Errorf("%s: asked with %s", r.Model, calls.Raw)
		}
	}
}
