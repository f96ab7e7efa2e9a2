package conversation_test

import (
	"errors"
	"fmt"
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

// step is a call with that input and its result.
func step(id, input, result string) []protocol.Message {
	return []protocol.Message{
		{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{{ID: id, Name: "t", Input: []byte(input)}}},
		{Role: protocol.RoleTool, ToolCallID: id, ToolName: "t", Content: result},
	}
}

// A turn that outgrows the window goes on: what the model has seen of it is left
// out, the oldest first, and what it has not is cut.
func TestARunningTurnIsSqueezed(t *testing.T) {
	long := strings.Repeat("r", 1200)
	d := conversation.New([]protocol.Message{user("go")}, conversation.Preamble{ContextWindow: 1333}) // 1,000 tokens available, 4,000 bytes
	for i := range 3 {
		d.Add(step(fmt.Sprint(i), `{}`, long)...)
	}
	contents := func() (lengths []int) {
		t.Helper()
		window, err := d.Fit(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range window.Messages {
			if m.Role == protocol.RoleTool {
				lengths = append(lengths, len(m.Content))
			}
		}
		return lengths
	}
	if diff := cmp.Diff([]int{1200, 1200, 1200}, contents()); diff != "" {
		t.Errorf("all fit (-want +got):\n%s", diff)
	}
	d.Add(step("3", `{}`, long)...)
	note := len("[result of 1200 bytes left out]")
	if diff := cmp.Diff([]int{note, note, 1200, 1200}, contents()); diff != "" {
		t.Errorf("the oldest are left out, more than needed (-want +got):\n%s", diff)
	}
	d.Add(step("4", `{}`, long)...)
	if diff := cmp.Diff([]int{note, note, 1200, 1200, 1200}, contents()); diff != "" {
		t.Errorf("so that the next request begins alike (-want +got):\n%s", diff)
	}
	d.Add(step("5", `{}`, strings.Repeat("é", 4000))...)
	window, err := d.Fit(0)
	if err != nil {
		t.Fatal(err)
	}
	last := window.Messages[len(window.Messages)-1].Content
	if !strings.HasPrefix(last, "éé") || !strings.HasSuffix(last, "of 8000 bytes left out: they do not fit the context window]") || len(last) < 2000 {
		t.Errorf("the last result is %.20q … %q, %d bytes", last, last[max(0, len(last)-80):], len(last))
	}
	if got := d.Messages()[2].Content; got != long {
		t.Errorf("the conversation itself was changed: %.40q", got)
	}
}

func TestLongInputsAreLeftOut(t *testing.T) {
	for _, tc := range []struct{ name, input, want string }{
		{"a long member", `{"path":"a.txt","content":"` + strings.Repeat("c", 5000) + `"}`, `{"content":"[5002 bytes left out]","path":"a.txt"}`},
		// These stayed as they were, so that the turn failed.
		{"no JSON", `"{\"content\":` + strings.Repeat("[", 5000) + `"`, `{"input":"[5015 bytes left out]"}`},
		{"no object", `["` + strings.Repeat("c", 5000) + `"]`, `{"input":"[5004 bytes left out]"}`},
		{"a member twice", `{"a":"` + strings.Repeat("c", 5000) + `","a":1}`, `{"input":"[5014 bytes left out]"}`},
		{"many members", "{" + members(5000) + "}", fmt.Sprintf(`{"input":"[%d bytes left out]"}`, 2+len(members(5000)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := conversation.New([]protocol.Message{user("go")}, conversation.Preamble{ContextWindow: 1333})
			d.Add(step("1", tc.input, "wrote a.txt")...)
			window, err := d.Fit(0)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(window.Messages[1].ToolCalls[0].Input); got != tc.want {
				t.Errorf("got %.200s, want %s", got, tc.want)
			}
			if got := window.Messages[2].Content; got != "wrote a.txt" {
				t.Errorf("the result is %q", got)
			}
			if got := string(d.Messages()[1].ToolCalls[0].Input); got != tc.input {
				t.Errorf("the conversation itself was changed: %.60s", got)
			}
		})
	}
}

// members are so many short members of an object.
func members(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"m%d":1`, i)
	}
	return strings.Join(all, ",")
}

// The shortest of the latest results stay whole.
func TestLatestResultsShare(t *testing.T) {
	d := conversation.New([]protocol.Message{user("go"), {Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{
		{ID: "a", Name: "t", Input: []byte(`{}`)}, {ID: "b", Name: "t", Input: []byte(`{}`)}, {ID: "c", Name: "t", Input: []byte(`{}`)},
	}}}, conversation.Preamble{ContextWindow: 1333})
	for id, n := range map[string]int{"a": 9000, "b": 100, "c": 1500} {
		d.Add(protocol.Message{Role: protocol.RoleTool, ToolCallID: id, Content: strings.Repeat(id, n)})
	}
	window, err := d.Fit(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range window.Messages[2:] {
		cut := strings.Contains(m.Content, "left out")
		if want := m.ToolCallID == "a"; cut != want || len(m.Content) < 100 {
			t.Errorf("%s is cut: %v, %d bytes", m.ToolCallID, cut, len(m.Content))
		}
	}
}

func TestNothingHelps(t *testing.T) {
	for name, messages := range map[string][]protocol.Message{
		"a prompt":    {user(strings.Repeat("x", 5000))},
		"a long text": append([]protocol.Message{user("go")}, append([]protocol.Message{says(strings.Repeat("x", 5000))}, step("1", `{}`, "r")...)...),
	} {
		if window, err := conversation.New(messages, conversation.Preamble{ContextWindow: 1333}).Fit(0); !errors.Is(err, conversation.ErrTooLarge) {
			t.Errorf("%s: got %d messages, %v", name, len(window.Messages), err)
		}
	}
}

// Whatever a turn consists of, a request fits or is refused, says how large it
// is, and has each call with its result.
func TestFitFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := conversation.New(nil, conversation.Preamble{
			System: strings.Repeat("s", rapid.IntRange(0, 500).Draw(t, "system")), ContextWindow: rapid.Uint64Range(100, 6000).Draw(t, "window"),
			MaxMessages: rapid.IntRange(0, 9).Draw(t, "max messages"),
		})
		for range rapid.IntRange(1, 3).Draw(t, "turns") {
			d.Add(user(strings.Repeat("u", rapid.IntRange(0, 300).Draw(t, "prompt"))))
			for i := range rapid.IntRange(0, 6).Draw(t, "steps") {
				d.Add(step(fmt.Sprint(d.Len(), i), fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("i", rapid.IntRange(0, 900).Draw(t, "input"))),
					strings.Repeat("é", rapid.IntRange(0, 4000).Draw(t, "result")))...)
				window, err := d.Fit(0)
				if err != nil {
					if !errors.Is(err, conversation.ErrTooLarge) {
						t.Fatal(err)
					}
					continue
				}
				var text uint64
				open := map[string]bool{}
				for _, m := range window.Messages {
					text += provider.TextBytes(m)
					for _, c := range m.ToolCalls {
						open[c.ID] = true
					}
					if m.Role == protocol.RoleTool && !open[m.ToolCallID] {
						t.Fatal("a result without its call")
					}
					delete(open, m.ToolCallID)
				}
				if len(open) > 0 || window.Messages[0].Role != protocol.RoleUser {
					t.Fatal("a part of a turn")
				}
				if text != window.TextBytes {
					t.Fatalf("says it has %d bytes of text and has %d", window.TextBytes, text)
				}
				if request, _ := d.Estimate(window, 0); request > d.Breakdown().Available+2 { // two roundings
					t.Fatalf("a request of %d tokens, %d are available", request, d.Breakdown().Available)
				}
			}
			d.Add(says("done"))
		}
	})
}

// The oldest turns leave a request for their number alone, some at a time.
func TestMaxMessages(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: 1_000_000, MaxMessages: 40})
	var sizes []int
	for i := range 60 {
		d.Add(user(fmt.Sprint(i)))
		window, err := d.Fit(0)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(window.Messages))
		if len(window.Messages) > 40 || window.Messages[0].Role != protocol.RoleUser {
			t.Fatalf("turn %d: %d messages from %s", i, len(window.Messages), window.Messages[0].Role)
		}
		d.Add(says("ok"))
	}
	want := []int{31, 33, 35, 37, 39, 31, 33, 35, 37, 39, 31}
	if diff := cmp.Diff(want, sizes[20:31]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Len() != 120 {
		t.Errorf("the conversation has %d messages", d.Len())
	}
	long := []protocol.Message{user("go")}
	for i := range 30 {
		long = append(long, step(fmt.Sprint(i), `{}`, "r")...)
	}
	window, err := conversation.New(long, conversation.Preamble{ContextWindow: 1_000_000, MaxMessages: 40}).Fit(0)
	if err != nil || len(window.Messages) != 61 {
		t.Errorf("a turn of more messages: %d, %v", len(window.Messages), err)
	}
}

func TestDue(t *testing.T) {
	turns := func(sizes ...int) *conversation.Conversation {
		d := conversation.New(nil, conversation.Preamble{ContextWindow: 1333})
		for _, n := range sizes {
			d.Add(user("go"), says(strings.Repeat("x", n)))
		}
		d.Add(user("now"))
		return d
	}
	tests := []struct {
		name string
		d    *conversation.Conversation
		want int // messages; 0 for nothing
	}{
		{"room enough", turns(500, 500), 0},
		{"the last two turns stay", turns(2000, 1000, 200), 4},
		{"a large one does not", turns(200, 3400), 4},
		{"nothing but the running turn", conversation.New([]protocol.Message{user(strings.Repeat("x", 4000))}, conversation.Preamble{ContextWindow: 1333}), 0},
	}
	for _, tt := range tests {
		if old := tt.d.DueForCompaction(80); len(old) != tt.want {
			t.Errorf("%s: got %d messages, want %d", tt.name, len(old), tt.want)
		}
	}
	d := turns(500, 500)
	window, err := d.Fit(0)
	if err != nil {
		t.Fatal(err)
	}
	d.RecordTooLarge(window)
	if got := len(d.DueForCompaction(80)); got != 2 {
		t.Errorf("after a provider found that too large: got %d messages", got)
	}
	smaller, err := d.Fit(0)
	if err != nil || len(smaller.Messages) >= len(window.Messages) {
		t.Errorf("the next request has %d messages, %v", len(smaller.Messages), err)
	}
	d.SetModel("other", 1333)
	if got := len(d.DueForCompaction(80)); got != 0 {
		t.Errorf("with another model: got %d messages", got)
	}
}

func TestImagesCost(t *testing.T) {
	d := conversation.New(nil, conversation.Preamble{ContextWindow: 100_000})
	d.Add(protocol.Message{Role: protocol.RoleUser, Images: make([]protocol.Image, 2)})
	if got := d.Breakdown().Messages; got != 3204 {
		t.Errorf("got %d", got)
	}
	d.SetSystem("12345678")
	if got := d.Breakdown(); got.System != 2 || got.Total != 3206 {
		t.Errorf("got %+v", got)
	}
}

func TestRender(t *testing.T) {
	messages := []protocol.Message{
		conversation.NewSummary("old things", "", "", time.Time{}), user("read a.txt"),
		{Role: protocol.RoleAssistant, Content: "I will.", ToolCalls: []protocol.ToolCall{{ID: "1", Name: "read_file", Input: []byte(`{"path":"a.txt"}`)}}},
		{Role: protocol.RoleTool, ToolName: "read_file", Content: strings.Repeat("é", 2000), Images: []protocol.Image{{Name: "a.png"}}},
		says("done"),
	}
	want := "Summary of the earlier conversation:\nold things\n\n[user] read a.txt\n[assistant] I will.\n[called read_file] {\"path\":\"a.txt\"}\n" +
		"[read_file gave] " + strings.Repeat("é", 1024) + "… [1952 bytes more]\n[image a.png]\n[assistant] done\n"
	if diff := cmp.Diff(want, conversation.Render(messages, 10_000)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = "Summary of the earlier conversation:\nold things\n\n[what was said before is left out]\n[assistant] done\n"
	if diff := cmp.Diff(want, conversation.Render(messages, 500)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a provider refused once makes requests smaller, but none impossible, and
// is outgrown by what it answers.
func TestWhatIsLearnedIsNoEnd(t *testing.T) {
	fit := func(d *conversation.Conversation) conversation.Window {
		t.Helper()
		window, err := d.Fit(0)
		if err != nil {
			t.Fatal(err)
		}
		return window
	}
	preamble := conversation.Preamble{System: strings.Repeat("s", 4000), ContextWindow: 8000}
	d := conversation.New([]protocol.Message{user("hi")}, preamble)
	if d.RecordTooLarge(fit(d)) || d.Breakdown().Available != 6000 {
		t.Errorf("of a request that is as small as can be it learned: %+v", d.Breakdown())
	}
	d.Add(says(strings.Repeat("x", 8000)), user("more"))
	for range 5 {
		window := fit(d)
		if smaller := d.RecordTooLarge(window); smaller != (len(window.Messages) > 1) {
			t.Fatalf("a request of %d messages can be made smaller: %v", len(window.Messages), smaller)
		}
	}
	if b := d.Breakdown(); b.Available < 1000 || b.Available > 2300 {
		t.Errorf("with the least request: %+v", b)
	}
	d.Add(says("ok"), user(strings.Repeat("long", 3000)))
	if window := fit(d); len(window.Messages) != 1 {
		t.Errorf("a longer prompt is sent with %d messages", len(window.Messages))
	}
	if b := d.Breakdown(); b.Available < 4000 {
		t.Errorf("with a prompt of 3,000 tokens and a system prompt of 1,000: %+v", b)
	}
	d.Add(says("ok"), user("and now?"))
	answered := 0
	for d.Breakdown().Available < 6000 {
		d.RecordAnswer(fit(d), protocol.TurnUsage{})
		d.Add(says(strings.Repeat("y", 2000)), user("go on"))
		if answered++; answered > 50 {
			t.Fatalf("after 50 answers: %+v", d.Breakdown())
		}
	}
	d.RecordTooLarge(fit(d))
	d.Clear()
	if got := d.Breakdown().Available; got != 6000 {
		t.Errorf("in a new session %d are available", got)
	}
}

// A turn whose least form is more than what was learned is tried in that form;
// and so is one that only a provider's count makes too large.
func TestTheLeastIsTried(t *testing.T) {
	turn := func() *conversation.Conversation {
		d := conversation.New([]protocol.Message{user("go")}, conversation.Preamble{System: strings.Repeat("s", 2000), ContextWindow: 1333})
		d.Add(says(strings.Repeat("x", 1500)))
		d.Add(step("1", `{}`, strings.Repeat("r", 200))...)
		return d
	}
	learn := map[string]func(*conversation.Conversation, conversation.Window){
		"refused": func(d *conversation.Conversation, p conversation.Window) { d.RecordTooLarge(p) },
		"counted": func(d *conversation.Conversation, p conversation.Window) {
			d.RecordAnswer(p, protocol.TurnUsage{InputTokens: 1e9})
		},
	}
	for name, learn := range learn {
		d := turn()
		whole, err := d.Fit(0)
		if err != nil {
			t.Fatal(err)
		}
		learn(d, whole)
		window, err := d.Fit(0)
		if err != nil || !window.Smaller(whole) {
			t.Fatalf("%s: %v, smaller %v", name, err, window.Smaller(whole))
		}
		if got := window.Messages[len(window.Messages)-1].Content; got != "[result of 200 bytes left out]" {
			t.Errorf("%s: the result is %q", name, got)
		}
	}
}

func TestSignaturesCost(t *testing.T) {
	d := conversation.New([]protocol.Message{{Role: protocol.RoleAssistant, ThinkingSignature: strings.Repeat("g", 4000)}}, conversation.Preamble{ContextWindow: 100_000})
	if got := d.Breakdown().Messages; got != 1004 {
		t.Errorf("got %d", got)
	}
}

// A turn that failed for its size, or for that of its answer, does not cost the
// turns before it: neither requests nor compaction count it.
func TestFailedTurnTooLarge(t *testing.T) {
	large := strings.Repeat("x", 5000)
	partial := says(large)
	partial.Interrupted = true
	refused := append([]protocol.Message{user(large)}, step("1", `{}`, "not run")...)
	ran := append([]protocol.Message{user("go")}, step("1", `{"a":"`+large+`"}`, large)...)
	tests := []struct {
		name    string
		failed  []protocol.Message
		leftOut bool
	}{
		{"prompt", []protocol.Message{user(large)}, true},
		{"prompt with calls", refused, true},
		{"answer", []protocol.Message{user("go"), partial}, true},
		{"answer that is whole", []protocol.Message{user("go"), says(large)}, false},
		{"results that can be shortened", ran, false},
		{"what fits", []protocol.Message{user(large[:1000])}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := []protocol.Message{user("a"), says("b"), user("c"), says("d")}
			after := []protocol.Message{user("e"), says("f"), user("g")}
			preamble := conversation.Preamble{System: "s", ContextWindow: 1333}
			want := conversation.New(slices.Concat(before, after), preamble)
			all := slices.Concat(before, tt.failed, after)
			d := conversation.New(nil, preamble)
			for _, m := range all {
				d.Add(m)
			}
			for name, d := range map[string]*conversation.Conversation{"grown": d, "restored": conversation.New(all, preamble)} {
				if same := d.Breakdown() == want.Breakdown(); same != tt.leftOut {
					t.Errorf("%s: %+v", name, d.Breakdown())
				}
				if !tt.leftOut {
					continue
				}
				got, err := d.Fit(0)
				if err != nil {
					t.Fatal(err)
				}
				expected, err := want.Fit(0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(expected, got, cmp.AllowUnexported(conversation.Window{})); diff != "" {
					t.Errorf("%s: window (-want +got):\n%s", name, diff)
				}
				if old := d.DueForCompaction(80); old != nil {
					t.Errorf("%s: %d messages are due", name, len(old))
				}
			}
		})
	}
	// The turns that are kept are those that requests carry.
	d := conversation.New([]protocol.Message{user("a"), says("b"), user("c"), says("d"), user(large), user("e")}, conversation.Preamble{ContextWindow: 1333})
	if old, ok, why := d.Compactable(conversation.KeepTurns); !ok || len(old) != 2 {
		t.Errorf("of the turns before a failed one %d messages are replaced: %s", len(old), why)
	}
}
