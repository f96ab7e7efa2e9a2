package codex_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/codex"
	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

func options(fault string, more ...string) foreigntest.Options {
	return foreigntest.Options{Driver: codex.Driver{}, Command: foreigntest.Fake("codex", fault, more...)}
}

// TestTurns has two turns with each fault that leaves the program running.
func TestTurns(t *testing.T) {
	for _, tt := range []struct{ fault, want string }{
		{"none", ""},
		{"ends-turn-twice", ""},
		{"ends-turn-late", ""},
		{"garbage-lines", ""},
		{"half-characters", "half \uFFFD"},
		{"says-twice", ""},
		{"models", " for small"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			a := foreigntest.Open(t, options(tt.fault))
			for i, word := range []string{"one", "two"} {
				n := string(rune('1' + i))
				result, said := a.Turn(t.Context(), n, word)
				if want := "prompt " + n + ": " + word + tt.want; result.Err != nil || result.Stop != protocol.StopCompleted || said.Text() != want {
					t.Errorf("turn %s: %+v: got %q, want %q", n, result, said.Text(), want)
				}
			}
			if state := a.State(); state.Name != "codex" || state.Version != "1" || !strings.HasPrefix(state.Session, "fake-") {
				t.Errorf("state: %+v", state)
			}
		})
	}
}

// TestEnds has programs that end in a turn: what they said is kept, and nothing of them is left.
func TestEnds(t *testing.T) {
	for _, tt := range []struct{ fault, want string }{
		{"exit-in-turn", "exit status 4"},
		{"killed-in-turn", "killed by signal 9"},
		{"grandchild-exit", "exit status 0"},
		{"closes-stdout", "it had closed its output"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			before := foreigntest.Children(t)
			a := foreigntest.Open(t, options(tt.fault))
			result, _ := a.Turn(t.Context(), "1", "hello")
			if !errors.Is(result.Err, foreign.ErrEnded) || !strings.Contains(result.Err.Error(), tt.want) {
				t.Errorf("result: %+v, want %q", result, tt.want)
			}
			if last := a.Conversation.Messages()[1]; !last.Interrupted || last.Content != "prompt 1: hello" {
				t.Errorf("kept: %+v", last)
			}
			<-a.Gone()
			if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("processes (-before +after):\n%s", diff)
			}
		})
	}
}

// TestFails passes on why a turn failed, and goes on.
func TestFails(t *testing.T) {
	a := foreigntest.Open(t, options("fails"))
	for _, n := range []string{"1", "2"} {
		result, _ := a.Turn(t.Context(), n, "hello")
		if e, ok := errors.AsType[*foreign.TurnError](result.Err); !ok || e.Reason != protocol.Credentials || !strings.Contains(e.Message, "no key") {
			t.Errorf("turn %s: %+v", n, result)
		}
	}
}

// TestCancel interrupts turns, and goes on after it.
func TestCancel(t *testing.T) {
	a := foreigntest.Open(t, options("waits"))
	for _, n := range []string{"1", "2"} {
		result, said := a.Cancelled(t.Context(), n, "hello", "hello")
		if result.Err != nil || result.Stop != protocol.StopAborted || said.Text() != "prompt "+n+": hello" {
			t.Errorf("turn %s: %+v, %q", n, result, said.Text())
		}
	}
}

// TestResume goes on with a thread, or says why it cannot.
func TestResume(t *testing.T) {
	for _, tt := range []struct {
		fault, text, reason string
		resumed             protocol.Resumed
	}{
		{"none", "prompt 2: two", "", protocol.ResumedByProgram},
		{"resume-fails", "prompt 1: two", "thread/resume: no rollout found", protocol.ResumedByContext},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			dir := t.TempDir()
			a := foreigntest.Open(t, options(tt.fault, "--state", dir))
			if result, _ := a.Turn(t.Context(), "1", "one"); result.Err != nil {
				t.Fatal(result.Err)
			}
			o := options(tt.fault, "--state", dir)
			o.Resume, o.Began = a.State().Session, true
			_ = a.Close()
			a = foreigntest.Open(t, o)
			if state := a.State(); state.Resumed != tt.resumed || !strings.Contains(state.ResumeReason, tt.reason) {
				t.Errorf("state: %+v", state)
			}
			if result, said := a.Turn(t.Context(), "2", "two"); result.Err != nil || said.Text() != tt.text {
				t.Errorf("turn: %+v, %q", result, said.Text())
			}
		})
	}
}

// TestPermission answers a program's question.
func TestPermission(t *testing.T) {
	for want, answer := range map[string]protocol.PermissionResponse{
		"accept":           {Decision: protocol.AllowOnce},
		"acceptForSession": {Decision: protocol.AllowSession, OptionID: "acceptForSession"},
		"decline":          {Decision: protocol.Deny},
	} {
		client := &foreigntest.Client{Answer: answer, Questions: make(chan foreign.Question, 1)}
		o := options("asks")
		o.Client = client
		result, said := foreigntest.Open(t, o).Turn(t.Context(), "1", "hello")
		if want := "prompt 1: hello answer: " + want; result.Err != nil || said.Text() != want {
			t.Errorf("turn: %+v: got %q, want %q", result, said.Text(), want)
		}
		if q := <-client.Questions; q.Action != protocol.ActionExecute || q.Command != "touch made" || q.Summary != "Run touch made" || q.Name != "commandExecution" {
			t.Errorf("question: %+v", q)
		}
	}
	client := &foreigntest.Client{Questions: make(chan foreign.Question)} // nobody answers
	o := options("asks")
	o.Client = client
	a := foreigntest.Open(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		<-client.Questions
		cancel()
	}()
	result, said := a.Turn(ctx, "1", "hello")
	<-asked
	if result.Stop != protocol.StopAborted || said.Text() != "prompt 1: hello answer: cancel" {
		t.Errorf("turn: %+v: %q", result, said.Text())
	}
}

// TestCalls passes on what calls say, and the usage of the turn.
func TestCalls(t *testing.T) {
	a := foreigntest.Open(t, options("runs"))
	result, said := a.Turn(t.Context(), "1", "hello")
	if u := result.Usage; result.Err != nil || u.InputTokens != 3 || u.CacheReadInputTokens != 2 || u.OutputTokens != 2 {
		t.Errorf("result: %+v", result)
	}
	want := []protocol.AssistantEvent{
		protocol.ToolcallStart{ToolID: "call-1", ToolName: "commandExecution"},
		protocol.ToolcallInput{ToolID: "call-1", Input: []byte(`{"command":"thing","cwd":"/w"}`)},
		protocol.ToolcallOutputDelta{ToolID: "call-1", Delta: "out"},
		protocol.ToolcallResult{ToolID: "call-1", Result: "out\nexit status 3", IsError: true},
		protocol.ToolcallStart{ToolID: "call-1-edit", ToolName: "fileChange"},
		protocol.ToolcallInput{ToolID: "call-1-edit", Input: []byte(`{"changes":[{"path":"/a","kind":"update","diff":"-two\n+three"}]}`)},
		protocol.ToolcallResult{ToolID: "call-1-edit", Result: "update /a\n-two\n+three"},
	}
	if diff := cmp.Diff(want, said.All[2:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	_, said = foreigntest.Open(t, options("unknown-updates")).Turn(t.Context(), "1", "hello")
	if passed := foreigntest.Only[protocol.Foreign](said); len(passed) != 3 || !strings.Contains(string(passed[1].Message), "weather/changed") {
		t.Errorf("passed on: %+v", passed)
	}
	_, said = foreigntest.Open(t, options("thinks")).Turn(t.Context(), "1", "hello")
	if got := foreigntest.Only[protocol.ThinkingDelta](said); len(got) != 1 || got[0].Delta != "hm" {
		t.Errorf("thinking: %+v", got)
	}
}

// TestModel changes the model of the turns that follow.
func TestModel(t *testing.T) {
	a := foreigntest.Open(t, options("models"))
	if err := a.SetModel(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	if err := a.SetModel(t.Context(), "huge"); err == nil || a.Model() != "large" {
		t.Errorf("set: %v, %q", err, a.Model())
	}
	if _, said := a.Turn(t.Context(), "1", "one"); said.Text() != "prompt 1: one for large" {
		t.Errorf("said %q", said.Text())
	}
}
