package scripted_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/protocol"
)

func TestScenario(t *testing.T) {
	p := scenario(t, "tour.json")
	messages := []protocol.Message{user("hello")}
	next := func(more ...protocol.Message) told {
		t.Helper()
		messages = append(messages, more...)
		got := ask(t.Context(), t, p, request(messages...))
		if got.Err != nil || got.Stop == nil {
			t.Fatalf("after %d messages: error %v", len(messages), got.Err)
		}
		messages = append(messages, got.message)
		return got
	}
	got := next()
	name := "offline"
	want := protocol.TurnUsage{InputTokens: 100, OutputTokens: 20, CacheReadInputTokens: 64, Model: &name}
	if diff := cmp.Diff(want, got.Stop.Usage); diff != "" || got.Text != "Hello from a scenario." || got.Thinking == "" {
		t.Errorf("text %q, thinking %q, usage -want +got\n%s", got.Text, got.Thinking, diff)
	}
	got = next(user("look"))
	calls := []string{`read_file {"path": "a.txt"}`, `read_file {"path": "b.txt"}`}
	if diff := cmp.Diff(calls, got.Calls); diff != "" || got.Text != "I look at two files." {
		t.Errorf("text %q, calls -want +got\n%s", got.Text, diff)
	}
	if a, b := got.message.ToolCalls[0].ID, got.message.ToolCalls[1].ID; a == b {
		t.Errorf("two calls have the id %s", a)
	}
	result := protocol.Message{Role: protocol.RoleTool, Content: "x"}
	if got = next(result, result); got.Text != "And then I wait." || len(got.Calls) != 1 {
		t.Errorf("text %q, calls %v", got.Text, got.Calls)
	}
	if got = next(result); got.Text != "That was all." || len(got.Calls) != 0 {
		t.Errorf("text %q, calls %v", got.Text, got.Calls)
	}
	if got = next(user("My name is Alice")); got.Text != "Nice to meet you, Alice!" {
		t.Errorf("after the last turn: %q", got.Text)
	}
}

// What comes after the last turn, and prompts that a match picks do not use up
// the turns that are played in order.
func TestScenarioOrder(t *testing.T) {
	const text = `{"turns":[{"steps":[{"text":"a"}]},{"match":"m","steps":[{"text":"M"}]},{"steps":[{"text":"b"}]}],"after":%q}`
	for _, tt := range []struct{ after, want string }{
		{"fail", "a M b M !the scenario has no turn left for this prompt"},
		{"repeat", "a M b M a b a"},
	} {
		p, err := scripted.New(scripted.Options{Scenario: fmt.Appendf(nil, text, tt.after)})
		if err != nil {
			t.Fatal(err)
		}
		var messages []protocol.Message
		var got []string
		for _, prompt := range []string{"x", "m", "y", "m", "z", "z", "z"} {
			messages = append(messages, user(prompt))
			answer := ask(t.Context(), t, p, request(messages...))
			if answer.Err != nil {
				got = append(got, "!"+answer.Err.Error())
				break
			}
			got = append(got, answer.Text)
			messages = append(messages, answer.message)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("after %s: %q, want %q", tt.after, strings.Join(got, " "), tt.want)
		}
	}
}

func TestScenarioFaults(t *testing.T) {
	p := scenario(t, "faults.json")
	play := func(prompt string) told {
		t.Helper()
		return ask(t.Context(), t, p, request(user("please play "+prompt)))
	}
	if got := play("error"); got.Text != "So far so good." || got.Err == nil || got.Err.Error() != "the model is overloaded" {
		t.Errorf("error: %q, %v", got.Text, got.Err)
	}
	if got := play("full"); !errors.Is(got.Err, provider.ErrContextWindow) {
		t.Errorf("full: %v", got.Err)
	}
	if got := play("retry"); got.Text != "Better now." {
		t.Errorf("retry: %q", got.Text)
	}
	if got := play("flood"); got.Words != 10_000 || len(got.Text) != 1_000_000 {
		t.Errorf("flood: %d deltas of %d bytes", got.Words, len(got.Text))
	}
	if got := play("badly"); len(got.Calls) != 1 || got.Calls[0] != `no_such_tool "not an object"` {
		t.Errorf("badly: %v", got.Calls)
	}
	got := ask(t.Context(), t, p, request(user("hello")))
	if !strings.Contains(got.Text, "offline model") {
		t.Errorf("another prompt: %q", got.Text)
	}
}

// A turn whose last step is a tool call ends, without a word, with its result.
func TestScenarioEndsInTool(t *testing.T) {
	p, err := scripted.New(scripted.Options{Scenario: []byte(`{"turns":[{"steps":[{"tool":{"name":"sleep","input":{}}}]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	asked := ask(t.Context(), t, p, request(user("x")))
	got := ask(t.Context(), t, p, request(user("x"), asked.message, protocol.Message{Role: protocol.RoleTool}))
	if len(asked.Calls) != 1 || got.Err != nil || got.Stop == nil || got.Text != "" || len(got.Calls) != 0 {
		t.Errorf("asked %v, then %+v", asked.Calls, got)
	}
}

// The steps that bring the process down do.
func TestScenarioEnds(t *testing.T) {
	for _, tt := range []struct {
		prompt, stdout, stderr string
		exit                   int // -1 for a signal
	}{
		{"play exit", "bye.", "leaving with status 7", 7},
		{"play panic", "no.", "the scenario asked for a panic", 2},
		{"play kill", "Ouch.", "", -1},
	} {
		t.Run(tt.prompt, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), playEnv+"="+tt.prompt)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tt.exit {
				t.Fatalf("ended with %v, want exit status %d", err, tt.exit)
			}
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); tt.exit < 0 && status.Signal() != syscall.SIGKILL {
				t.Errorf("ended by %v", status.Signal())
			}
			if !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
		})
	}
}
