package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/child/tool"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// playEnv makes the test binary play one prompt of faults.json and leave, for
// the steps that bring a process down.
const playEnv = "NEXUS_TEST_PLAY"

func TestMain(m *testing.M) {
	if prompt := os.Getenv(playEnv); prompt != "" {
		scenario, err := os.ReadFile("../../../fixtures/agents/faults.json")
		if err != nil {
			panic(err)
		}
		p, err := scripted.New(scripted.Options{Scenario: scenario})
		if err != nil {
			panic(err)
		}
		for delta, err := range p.Stream(context.Background(), request(user(prompt))) {
			fmt.Println(delta, err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var tools = []tool.Spec{
	{Name: "read_file"}, {Name: "write_file"}, {Name: "list_directory"}, {Name: "glob"}, {Name: "search_text"}, {Name: "sleep"},
}

func user(text string) protocol.Message {
	return protocol.Message{Role: protocol.RoleUser, Content: text}
}

func said(text string) protocol.Message {
	return protocol.Message{Role: protocol.RoleAssistant, Content: text}
}

func request(messages ...protocol.Message) provider.Request {
	return provider.Request{Model: "offline", Messages: messages, Tools: tools}
}

func offline(t testing.TB) provider.Provider {
	t.Helper()
	p, err := scripted.New(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func scenario(t testing.TB, name string) provider.Provider {
	t.Helper()
	p, err := scripted.New(scripted.Options{Scenario: fixtures.Read(t, "agents/"+name)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// told is one answer, put together.
type told struct {
	Text, Thinking string
	Calls          []string // "name input"
	Words          int      // deltas of text
	Stop           *provider.Stop
	Err            error
	message        protocol.Message
}

// ask collects an answer and checks that its deltas are in order.
func ask(ctx context.Context, t testing.TB, p provider.Provider, r provider.Request) told {
	t.Helper()
	var got told
	input := map[string]string{}
	var text strings.Builder
	for delta, err := range p.Stream(ctx, r) {
		if got.Stop != nil || got.Err != nil {
			t.Errorf("%v, %v after the end", delta, err)
		}
		if err != nil {
			got.Err = err
			continue
		}
		switch d := delta.(type) {
		case provider.Text:
			text.WriteString(d.Text)
			got.Words++
		case provider.Thinking:
			got.Thinking += d.Text
		case provider.CallStart:
			input[d.ID] = ""
		case provider.CallInput:
			input[d.ID] += d.Fragment
		case provider.Call:
			if input[d.ID] != string(d.Input) {
				t.Errorf("fragments %q of the input %s", input[d.ID], d.Input)
			}
			got.Calls = append(got.Calls, d.Name+" "+string(d.Input))
			got.message.ToolCalls = append(got.message.ToolCalls, d.ToolCall)
		case provider.Stop:
			got.Stop = &d
		}
	}
	got.Text = text.String()
	got.message.Role, got.message.Content = protocol.RoleAssistant, got.Text
	return got
}

// The offline model, spoken to as people do. A line of the dialogue is a prompt
// and what it answers to it.
func TestDialogues(t *testing.T) {
	for _, dialogue := range [][][2]string{
		{
			{"My name is Alice", "Nice to meet you, Alice!"},
			{"What is my name?", "Your name is Alice."},
			{"what's MY  name", "Your name is Alice."},
			{"Call it: my name is Bob.", "Nice to meet you, Bob!"},
			{"Do you remember my name?", "Your name is Bob."},
		},
		{
			{"What is my name?", "You have not told me your name in this conversation."},
			{"Hi! My favourite colour is dark blue, and my shoes are red.", "I will remember that your favourite colour is dark blue. I will remember that your shoes are red."},
			{"What is my favourite colour?", "Your favourite colour is dark blue."},
			{"What are my shoes?", "Your shoes are red."},
			{"Where are my keys?", "You have not told me your keys in this conversation."},
			{"My version is 3.5. What is my version?", "Your version is 3.5."},
			{"Summarize this.", "A conversation of 13 messages. The user said: my version is 3.5. The user said: my shoes are red. The user said: my favourite colour is dark blue."},
		},
		{{"echo one  two\nthree", "one  two\nthree"}, {"echo", ""}, {"Echo: ü", "ü"}},
		{{"mein Name?", `I have no rule for "mein Name?": I am nexus's offline model, not a language model. This conversation has 1 message so far. Say "help" for what I can do.`}},
		{{"run make", "I have no tool shell here, so I cannot do that."}},
		{{"write me a poem", `I write only files: say "write FILE: TEXT".`}},
		{{"sleep well", `I sleep for a number of seconds, not for "well".`}},
		{{"count to a lot", `I count to a whole number from 1 to 1000000, not to "a lot".`}},
		{{"count to 1000001", `I count to a whole number from 1 to 1000000, not to "1000001".`}},
		{{"flood 3", "flood flood flood "}},
	} {
		var messages []protocol.Message
		for _, line := range dialogue {
			messages = append(messages, user(line[0]))
			got := ask(t.Context(), t, offline(t), request(messages...))
			if got.Err != nil || got.Stop == nil || got.Text != line[1] {
				t.Errorf("%q\n got %q, error %v\nwant %q", line[0], got.Text, got.Err, line[1])
			}
			messages = append(messages, got.message)
		}
	}
}

func TestHonest(t *testing.T) {
	for _, prompt := range []string{"hello", "Hi there!", "Hey", "help", "Who are you?", "are you a language model?", ""} {
		got := ask(t.Context(), t, offline(t), request(user(prompt)))
		for _, want := range []string{"offline model", "not a language model", "read FILE"} {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%q: %q does not say %q", prompt, got.Text, want)
			}
		}
		if words := len(strings.Fields(got.Text)); got.Words != words {
			t.Errorf("%q: %d deltas for %d words", prompt, got.Words, words)
		}
	}
}

// What was answered is not what the user said, also where a summary quotes it.
func TestRememberNoAnswerInSummary(t *testing.T) {
	old := []protocol.Message{user("My name is Alice"), said("Nice to meet you, Alice!"), user("hello"), said(`You can ask me (as in "my name is Bob")`)}
	summary := conversation.NewSummary(conversation.SummarizeByRule(old), "", "", time.Time{})
	if got := ask(t.Context(), t, offline(t), request(summary, user("what is my name?"))); got.Text != "Your name is Alice." {
		t.Errorf("got %q", got.Text)
	}
}

// A summary that stands for older messages keeps what was told in them.
func TestRememberAcrossSummary(t *testing.T) {
	summary := ask(t.Context(), t, offline(t), request(user("my name is Alice"), said("…"), user("summarise the conversation"))).Text
	for _, role := range []protocol.Role{protocol.RoleSystem, protocol.RoleUser} {
		got := ask(t.Context(), t, offline(t), request(protocol.Message{Role: role, Content: summary}, user("what is my name?")))
		if want := "Your name is Alice."; got.Text != want {
			t.Errorf("as %s: %q, want %q", role, got.Text, want)
		}
	}
}

func TestToolCalls(t *testing.T) {
	for _, tt := range []struct{ prompt, want string }{
		{"read notes.txt", `read_file {"path":"notes.txt"}`},
		{"Read the file \"größe und mehr.txt\"", `read_file {"path":"größe und mehr.txt"}`},
		{"list", `list_directory {"path":"."}`},
		{"list the files", `list_directory {"path":"."}`},
		{"list sub/dir", `list_directory {"path":"sub/dir"}`},
		{"write a/b.txt: x: \"y\"\nz", `write_file {"content":"x: \"y\"\nz","path":"a/b.txt"}`},
		{"find **/*.go", `glob {"pattern":"**/*.go"}`},
		{"Search: a.b(", `search_text {"literal":true,"pattern":"a.b("}`},
		{"sleep 0.5", `sleep {"seconds":0.5}`},
		{"sleep 2 seconds", `sleep {"seconds":2}`},
	} {
		got := ask(t.Context(), t, offline(t), request(user(tt.prompt)))
		if diff := cmp.Diff([]string{tt.want}, got.Calls); diff != "" || got.Stop == nil || got.Text != "" {
			t.Errorf("%q: text %q, calls -want +got\n%s", tt.prompt, got.Text, diff)
		}
	}
}

func TestToolResults(t *testing.T) {
	ids := map[string]bool{}
	messages := []protocol.Message{user("read a")}
	for range 3 {
		got := ask(t.Context(), t, offline(t), request(messages...))
		id := got.message.ToolCalls[0].ID
		if ids[id] {
			t.Errorf("the id %s is used twice", id)
		}
		ids[id] = true
		messages = append(messages, got.message,
			protocol.Message{Role: protocol.RoleTool, ToolCallID: id, ToolName: "read_file", Content: "line 1\nline 2\n"},
			said("…"), user("read a"))
	}
	result := messages[:3]
	if got := ask(t.Context(), t, offline(t), request(result...)); got.Text != "read_file gave:\nline 1\nline 2\n" {
		t.Errorf("answered %q", got.Text)
	}
	failed := append(result[:2:2], protocol.Message{Role: protocol.RoleTool, ToolName: "read_file", Content: "no such file", IsError: true},
		protocol.Message{Role: protocol.RoleTool, ToolName: "sleep", Content: "slept"})
	if got := ask(t.Context(), t, offline(t), request(failed...)); got.Text != "That did not work. no such file\n\nsleep gave:\nslept" {
		t.Errorf("answered %q", got.Text)
	}
}

func TestFail(t *testing.T) {
	got := ask(t.Context(), t, offline(t), request(user("fail")))
	if !errors.Is(got.Err, scripted.ErrAsked) || got.Stop != nil {
		t.Errorf("error %v, stop %v", got.Err, got.Stop)
	}
	r := request(user("hello"))
	r.Model = "gpt-5"
	if got := ask(t.Context(), t, offline(t), r); got.Err == nil || !strings.Contains(got.Err.Error(), `no model "gpt-5"`) {
		t.Errorf("an unknown model: %v", got.Err)
	}
}

func TestUsage(t *testing.T) {
	r := request(user("echo 12345678"))
	r.System, r.Tools = "12345", nil // 5 bytes and 13 in, 8 out
	got := ask(t.Context(), t, offline(t), r)
	name := "offline"
	want := protocol.TurnUsage{InputTokens: 5, OutputTokens: 2, Model: &name}
	if diff := cmp.Diff(want, got.Stop.Usage); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestPace(t *testing.T) {
	for _, tt := range []struct {
		prompt string
		want   string // the end of the text
		words  int
		took   time.Duration
	}{
		{"count to 5", "4 5", 5, 200 * time.Millisecond},
		{"count to 1,000", "999 1000", 1000, 999 * 50 * time.Millisecond},
		{"think hard", `"hard".`, 11, 0},
		{"Write a long essay", "(200 of 200).", 2677, 2676 * 20 * time.Millisecond},
	} {
		t.Run(tt.prompt, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := ask(t.Context(), t, offline(t), request(user(tt.prompt)))
				if took := time.Since(began); !strings.HasSuffix(got.Text, tt.want) || took != tt.took || got.Words != tt.words {
					t.Errorf("…%q in %d words after %v, want …%q in %d after %v",
						got.Text[max(0, len(got.Text)-20):], got.Words, took, tt.want, tt.words, tt.took)
				}
				if thinks := strings.HasPrefix(tt.prompt, "think"); thinks != (got.Thinking != "") {
					t.Errorf("thought %q", got.Thinking)
				}
			})
		})
	}
}

func TestAbort(t *testing.T) {
	for _, prompt := range []string{"count to 1000000", "write a long essay", "play hang", "speak slowly"} {
		t.Run(prompt, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := offline(t)
				switch prompt {
				case "play hang":
					p = scenario(t, "faults.json")
				case "speak slowly":
					p = scenario(t, "tour.json")
				}
				ctx, abort := context.WithCancel(t.Context())
				time.AfterFunc(1230*time.Millisecond, abort)
				began := time.Now()
				got := ask(ctx, t, p, request(user(prompt)))
				if took := time.Since(began); !errors.Is(got.Err, context.Canceled) || took != 1230*time.Millisecond {
					t.Errorf("error %v after %v", got.Err, took)
				}
				if got.Text == "" {
					t.Error("nothing was said before")
				}
			})
		})
	}
}

// A listener that leaves is not spoken to again, wherever it leaves.
func TestLeave(t *testing.T) {
	for _, prompt := range []string{"hello", "think of it", "flood 100", "read a", "count to 9"} {
		synctest.Test(t, func(t *testing.T) {
			for leave := 1; leave < 12; leave++ {
				heard := 0
				for range offline(t).Stream(t.Context(), request(user(prompt))) { // speaking on would panic here
					if heard++; heard == leave {
						break
					}
				}
			}
		})
	}
}

// A name that the configuration gives it is answered to; another is not.
func TestOtherNames(t *testing.T) {
	p, err := scripted.New(scripted.Options{Models: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"": "", "offline": "", "x": "", "y": `there is no model "y" here, only offline, x`,
	} {
		got := ""
		for _, err := range p.Stream(t.Context(), provider.Request{Model: name, Messages: []protocol.Message{{Role: protocol.RoleUser, Content: "hello"}}}) {
			if err != nil {
				got = err.Error()
			}
		}
		if got != want {
			t.Errorf("model %q: got %q, want %q", name, got, want)
		}
	}
}

func TestModels(t *testing.T) {
	got, err := offline(t).Models(t.Context())
	want := []protocol.Model{{Provider: "offline", ModelID: "offline", ModelName: "nexus offline model", ContextWindow: 128_000}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, -want +got\n%s", err, diff)
	}
}

// FuzzOffline: any prompt gets an answer in UTF-8 that ends in a Stop or in the
// error it asked for, with calls whose input is JSON.
func FuzzOffline(f *testing.F) {
	for _, prompt := range []string{
		"hello", "My name is Alice", "What is my name?", "write a: b", "count to 3", "sleep 1", "fail", "list", "echo \xff", "my x is y and my ",
	} {
		f.Add(prompt)
	}
	f.Fuzz(func(t *testing.T, prompt string) {
		lower := strings.ToLower(prompt)
		for _, slow := range []string{"count", "flood", "write a"} {
			if strings.Contains(lower, slow) {
				return // these take their time
			}
		}
		got := ask(t.Context(), t, offline(t), request(user(prompt)))
		if got.Stop == nil && !errors.Is(got.Err, scripted.ErrAsked) {
			t.Errorf("no end: %v", got.Err)
		}
		if !utf8.ValidString(got.Text) {
			t.Errorf("%q is not UTF-8", got.Text)
		}
		for _, call := range got.message.ToolCalls {
			if !call.Input.IsValid(jsontext.AllowInvalidUTF8(false)) {
				t.Errorf("input %q is not JSON", call.Input)
			}
		}
	})
}

func ExampleNew() {
	model, err := scripted.New(scripted.Options{})
	if err != nil {
		panic(err)
	}
	request := provider.Request{Messages: []protocol.Message{
		{Role: protocol.RoleUser, Content: "My name is Alice"},
		{Role: protocol.RoleAssistant, Content: "Nice to meet you, Alice!"},
		{Role: protocol.RoleUser, Content: "What is my name?"},
	}}
	for delta, err := range model.Stream(context.Background(), request) {
		if err != nil {
			panic(err)
		}
		if text, ok := delta.(provider.Text); ok {
			fmt.Printf("%q ", text.Text)
		}
	}
	// Output: "Your " "name " "is " "Alice."
}

// Tasks and plans get answers of their shapes, with the id and within the bounds that the prompt names.
func TestTasks(t *testing.T) {
	p, err := scripted.New(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const shape = "\n{\"task_id\": \"t\\\"1\", \"status\": \"success\", \"code\": \"\", \"explanation\": \"\"}\n"
	const size = "\nThe plan has 1 to %d tasks. Their ids are unique.\nAll of it must be done within 1.5 seconds.\n"
	for _, tt := range []struct{ prompt, want string }{
		{"Carry out this task (code_generation).\n\nSay hello\n\nLanguage: Python\n" + shape, `{"task_id":"t\"1","status":"success","code":"print(\"hello\")\n",`},
		{"Carry out this task (testing).\n\nTest it\n" + shape, `{"task_id":"t\"1","status":"success","code":"true\n","explanation":"A check that passes."}`},
		{"Carry out this task (analysis).\n\nLook\n" + shape, `"code":"","explanation":"There is nothing to find`},
		{"Make a plan for this request. Do not carry it out.\n\nBuild \"it\"\n" + fmt.Sprintf(size, 2), `"description":"Write it: Build \"it\"","dependencies":["analyze"],"priority":2}],"estimated_time_seconds":1.5,`},
	} {
		if got := ask(t.Context(), t, p, request(user(tt.prompt))).Text; !strings.Contains(got, tt.want) {
			t.Errorf("%s\nis answered %s, want %s", tt.prompt, got, tt.want)
		}
	}
}
