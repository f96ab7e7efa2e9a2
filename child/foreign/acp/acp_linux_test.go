package acp_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/acp"
	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

func options(fault string, more ...string) foreigntest.Options {
	return foreigntest.Options{Driver: acp.Driver{}, Command: foreigntest.Fake("acp", fault, more...)}
}

// TestTurns has turns of one conversation, each with what it leaves.
func TestTurns(t *testing.T) {
	a := foreigntest.Open(t, options("thinks"))
	for i, word := range []string{"one", "two"} {
		n := strconv.Itoa(i + 1)
		result, said := a.Turn(t.Context(), n, word)
		if result.Err != nil || result.Stop != protocol.StopCompleted || result.Usage.InputTokens != 3 || result.Usage.OutputTokens != 2 {
			t.Errorf("result %s: %+v", n, result)
		}
		if got, want := said.Text(), "prompt "+n+": "+word; got != want {
			t.Errorf("text: got %q, want %q", got, want)
		}
	}
	want := []protocol.Message{
		{Role: protocol.RoleUser, Content: "one", TurnID: "1"},
		{Role: protocol.RoleAssistant, Content: "prompt 1: one", Thinking: "hm", TurnID: "1"},
		{Role: protocol.RoleUser, Content: "two", TurnID: "2"},
		{Role: protocol.RoleAssistant, Content: "prompt 2: two", Thinking: "hm", TurnID: "2"},
	}
	if diff := cmp.Diff(want, a.Conversation.Messages(), cmpopts.IgnoreFields(protocol.Message{}, "At"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	state := a.State()
	if state.Name != "fakeagent" || state.Version != "1" || !strings.HasPrefix(state.Session, "fake-") || state.Resumed != protocol.ResumedNew {
		t.Errorf("state: %+v", state)
	}
}

// TestFaults has one turn with each fault that leaves the program running.
func TestFaults(t *testing.T) {
	var numbers strings.Builder
	for i := range 20_000 {
		numbers.WriteString(strconv.Itoa(i) + " ")
	}
	for _, tt := range []struct{ fault, want string }{
		{"none", "prompt 1: hello, world"},
		{"ends-turn-twice", "prompt 1: hello, world"},
		{"ends-turn-late", "prompt 1: hello, world"},
		{"garbage-lines", "prompt 1: hello, world"},
		{"huge-line", "prompt 1: hello, world after"},
		{"half-characters", "prompt 1: hello, worldhalf \uFFFD"},
		{"floods-text", "prompt 1: hello, world" + numbers.String()},
		{"says-twice", "prompt 1: hello, world"},
		{"late-update", "prompt 1: hello, world"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			a := foreigntest.Open(t, options(tt.fault))
			result, said := a.Turn(t.Context(), "1", "hello, world")
			if result.Err != nil || result.Stop != protocol.StopCompleted {
				t.Fatalf("result: %+v", result)
			}
			if got := said.Text(); got != tt.want {
				t.Errorf("text: got %.200q, want %.200q", got, tt.want)
			}
			// What comes after the end may be read only when the next turn runs: nobody can tell then.
			result, said = a.Turn(t.Context(), "2", "on, and on")
			want := strings.NewReplacer("prompt 1", "prompt 2", "hello, world", "on, and on").Replace(tt.want)
			if got := said.Text(); result.Err != nil || strings.TrimPrefix(got, "too late") != want {
				t.Errorf("second turn: %+v, got %.200q, want %.200q", result, said.Text(), want)
			}
		})
	}
}

// TestEnds has programs that end, or have to be ended, in a turn: what they said is kept, and nothing
// of them is left.
func TestEnds(t *testing.T) {
	for _, tt := range []struct{ fault, want string }{
		{"exit-in-turn", "exit status 4"},
		{"killed-in-turn", "killed by signal 9"},
		{"garbage-flood", "64 lines that it wrote were no messages"},
		{"grandchild-exit", "exit status 0"},
		{"closes-stdout", "it had closed its output"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			before := foreigntest.Children(t)
			a := foreigntest.Open(t, options(tt.fault))
			result, said := a.Turn(t.Context(), "1", "hello")
			if !errors.Is(result.Err, foreign.ErrEnded) || !strings.Contains(result.Err.Error(), tt.want) {
				t.Errorf("result: %+v, want %q", result, tt.want)
			}
			if got := said.Text(); got != "prompt 1: hello" {
				t.Errorf("text: got %q", got)
			}
			if last := a.Conversation.Messages()[1]; !last.Interrupted || last.Content != "prompt 1: hello" {
				t.Errorf("kept: %+v", last)
			}
			<-a.Gone()
			if err := a.Err(); !errors.Is(err, foreign.ErrEnded) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Err: %v", err)
			}
			if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("processes (-before +after):\n%s", diff)
			}
		})
	}
}

// TestCancel cancels turns, with and without text, and goes on after it.
func TestCancel(t *testing.T) {
	a := foreigntest.Open(t, options("waits"))
	for _, n := range []string{"1", "2"} {
		result, said := a.Cancelled(t.Context(), n, "hello", "hello")
		if result.Err != nil || result.Stop != protocol.StopAborted || said.Text() != "prompt "+n+": hello" {
			t.Errorf("turn %s: %+v, %q", n, result, said.Text())
		}
	}
	if last := a.Conversation.Messages()[3]; !last.Interrupted || last.Content != "prompt 2: hello" {
		t.Errorf("kept: %+v", last)
	}
	t.Run("silent", func(t *testing.T) {
		a := foreigntest.Open(t, options("silent"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel) // at any moment
		if result, said := a.Turn(ctx, "1", "hello"); result.Err != nil || result.Stop != protocol.StopAborted || said.Text() != "" {
			t.Errorf("result: %+v, %v", result, said.All)
		}
	})
	t.Run("ignored", func(t *testing.T) { // whoever waits no longer ends the program
		before := foreigntest.Children(t)
		a := foreigntest.Open(t, options("ignores-cancel"))
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan struct{})
		e := &foreigntest.Events{Mark: "hello", Seen: func() {
			cancel()
			go func() {
				defer close(closed)
				_ = a.Close()
			}()
		}}
		result := a.TurnTo(ctx, "1", "hello", e)
		<-closed
		if !errors.Is(result.Err, foreign.ErrEnded) {
			t.Errorf("result: %+v", result)
		}
		if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("processes (-before +after):\n%s", diff)
		}
	})
	t.Run("grandchild", func(t *testing.T) {
		before := foreigntest.Children(t)
		a := foreigntest.Open(t, options("grandchild"))
		if result, _ := a.Cancelled(t.Context(), "1", "hello", "hello"); result.Stop != protocol.StopAborted {
			t.Errorf("result: %+v", result)
		}
		_ = a.Close()
		if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("processes (-before +after):\n%s", diff)
		}
	})
}

// TestStart has programs that do not come to where they take prompts.
func TestStart(t *testing.T) {
	for _, tt := range []struct{ fault, want string }{
		{"exit-at-start", "exit status 3"},
		{"wants-login", "browser (Log in with a browser), fake-api-key (Use an API key); tried: fake-api-key: there is no key"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			before := foreigntest.Children(t)
			if _, err := foreigntest.TryOpen(t, options(tt.fault)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("processes (-before +after):\n%s", diff)
			}
		})
	}
	o := options("never-initialize")
	o.Timeout = 100 * time.Millisecond
	if _, err := foreigntest.TryOpen(t, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer initialize in time") {
		t.Errorf("a program that answers nothing: %v", err)
	}
	o = options("none")
	o.Model = "large"
	if _, err := foreigntest.TryOpen(t, o); err == nil || !strings.Contains(err.Error(), `no choice of models, so it cannot be told to use "large"`) {
		t.Errorf("a model of a program without models: %v", err)
	}
}

// TestResume goes on with a conversation, or says why it cannot.
func TestResume(t *testing.T) {
	for _, tt := range []struct {
		fault, text, reason string
		resumed             protocol.Resumed
	}{
		{"none", "prompt 2: two", "", protocol.ResumedByProgram},
		{"no-resume", "prompt 1: two", "neither session/load nor session/resume", protocol.ResumedByContext},
		{"resume-fails", "prompt 1: two", "session/load: Resource not found (-32002)", protocol.ResumedByContext},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			dir := t.TempDir()
			a := foreigntest.Open(t, options(tt.fault, "--state", dir))
			if result, _ := a.Turn(t.Context(), "1", "one"); result.Err != nil {
				t.Fatal(result.Err)
			}
			id := a.State().Session
			_ = a.Close()
			o := options(tt.fault, "--state", dir)
			o.Resume, o.Began = id, true
			a = foreigntest.Open(t, o)
			if state := a.State(); state.Resumed != tt.resumed || !strings.Contains(state.ResumeReason, tt.reason) || (tt.reason == "") != (state.Session == id) {
				t.Errorf("state: %+v", state)
			}
			// What the program says again while it loads is in no turn.
			if result, said := a.Turn(t.Context(), "2", "two"); result.Err != nil || said.Text() != tt.text {
				t.Errorf("turn: %+v, %q", result, said.Text())
			}
		})
	}
}

// TestSystem gives the system prompt once.
func TestSystem(t *testing.T) {
	o := options("none")
	o.System = "be kind"
	a := foreigntest.Open(t, o)
	if _, said := a.Turn(t.Context(), "1", "one"); said.Text() != "prompt 1: <instructions>\nbe kind\n</instructions>\n\none" {
		t.Errorf("first: %q", said.Text())
	}
	if _, said := a.Turn(t.Context(), "2", "two"); said.Text() != "prompt 2: two" {
		t.Errorf("second: %q", said.Text())
	}
}

// TestPermission answers a program's question with its own options.
func TestPermission(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer protocol.PermissionResponse
		want   string
	}{
		{"once", protocol.PermissionResponse{Decision: protocol.AllowOnce}, "yes"},
		{"for the session, which nexus remembers", protocol.PermissionResponse{Decision: protocol.AllowSession}, "yes"},
		{"by name", protocol.PermissionResponse{Decision: protocol.AllowSession, OptionID: "always"}, "always"},
		{"no", protocol.PermissionResponse{Decision: protocol.Deny}, "no"},
		{"no by name", protocol.PermissionResponse{Decision: protocol.Deny, OptionID: "never"}, "never"},
		{"a no is no yes", protocol.PermissionResponse{Decision: protocol.Deny, OptionID: "yes"}, "no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &foreigntest.Client{Answer: tt.answer, Questions: make(chan foreign.Question, 1)}
			o := options("asks")
			o.Client = client
			a := foreigntest.Open(t, o)
			result, said := a.Turn(t.Context(), "1", "hello")
			if want := "prompt 1: hello answer: " + tt.want; result.Err != nil || said.Text() != want {
				t.Errorf("turn: %+v: got %q, want %q", result, said.Text(), want)
			}
			q := <-client.Questions
			if q.Action != protocol.ActionExecute || q.Command != "touch made" || q.Summary != "Run touch made" || q.Name != "execute" || len(q.Options) != 4 {
				t.Errorf("question: %+v", q)
			}
			if calls := foreigntest.Only[protocol.ToolcallInput](said); len(calls) != 1 || string(calls[0].Input) != `{"command":"touch made"}` {
				t.Errorf("calls: %+v", calls)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) { // while nobody answers
		client := &foreigntest.Client{Questions: make(chan foreign.Question)}
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
		if result.Stop != protocol.StopAborted || said.Text() != "prompt 1: hello answer: cancelled" {
			t.Errorf("turn: %+v: %q", result, said.Text())
		}
	})
}

// TestCalls passes on what calls say: growing output as what is new in it, changes of files as lines.
func TestCalls(t *testing.T) {
	a := foreigntest.Open(t, options("runs"))
	result, said := a.Turn(t.Context(), "1", "hello")
	if result.Err != nil || result.Usage.Cost == nil || *result.Usage.Cost != 0.25 {
		t.Errorf("result: %+v", result)
	}
	want := []protocol.AssistantEvent{
		protocol.ToolcallStart{ToolID: "call-1", ToolName: "execute"},
		protocol.ToolcallInput{ToolID: "call-1", Input: []byte(`{"command":"thing"}`)},
		protocol.ToolcallOutputDelta{ToolID: "call-1", Delta: "out"},
		protocol.ToolcallOutputDelta{ToolID: "call-1", Delta: "out"},
		protocol.ToolcallResult{ToolID: "call-1", Result: "outout"},
		protocol.ToolcallStart{ToolID: "call-1-edit", ToolName: "edit"},
		protocol.ToolcallInput{ToolID: "call-1-edit", Input: []byte(`{"title":"Edit a","paths":["/a"]}`)},
		protocol.ToolcallResult{ToolID: "call-1-edit", Result: "/a\n- two\n+ three"},
	}
	if diff := cmp.Diff(want, said.All[3:len(said.All)-1]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if passed := foreigntest.Only[protocol.Foreign](said); len(passed) != 2 || !strings.Contains(string(passed[1].Message), `"usage_update"`) {
		t.Errorf("passed on: %+v", passed)
	}
}

// TestUnknown passes on what no event stands for, as it is.
func TestUnknown(t *testing.T) {
	a := foreigntest.Open(t, options("unknown-updates"))
	_, said := a.Turn(t.Context(), "1", "hello")
	passed := foreigntest.Only[protocol.Foreign](said)
	if len(passed) != 4 {
		t.Fatalf("passed on: %+v", passed)
	}
	for i, want := range []string{"available_commands_update", "weather_update", "plan", "_fake/notice"} {
		if !strings.Contains(string(passed[i].Message), want) {
			t.Errorf("message %d: %s, want %s", i, passed[i].Message, want)
		}
	}
}

// TestModels changes the model, at the start and later.
func TestModels(t *testing.T) {
	o := options("models")
	o.Model = "large"
	a := foreigntest.Open(t, o)
	if a.Model() != "large" || len(a.Setter().Models()) != 2 {
		t.Errorf("model %q of %+v", a.Model(), a.Setter().Models())
	}
	if err := a.SetModel(t.Context(), "small"); err != nil || a.Model() != "small" {
		t.Errorf("set: %v, %q", err, a.Model())
	}
	if err := a.SetModel(t.Context(), "huge"); err == nil || !strings.Contains(err.Error(), `no model "huge", but small, large`) || a.Model() != "small" {
		t.Errorf("set: %v, %q", err, a.Model())
	}
	if foreigntest.Open(t, options("none")).Setter() != nil {
		t.Error("a program without models can have its model set")
	}
}

// TestFiles reads and writes files as the client lets it.
func TestFiles(t *testing.T) {
	client := &foreigntest.Client{Files: map[string]string{"/a": "one\ntwo\nthree"}}
	o := options("files")
	o.Client = client
	result, said := foreigntest.Open(t, o).Turn(t.Context(), "1", "")
	want := `prompt 1: {"content":"two\n"}
{"code":-32603,"message":"there is no /nowhere"}
{}
{"code":-32601,"message":"the client has no method \"terminal/create\""}`
	if result.Err != nil || said.Text() != want {
		t.Errorf("turn: %+v\n got %s\nwant %s", result, said.Text(), want)
	}
	if client.Files["/b"] != "new" {
		t.Errorf("files: %v", client.Files)
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
