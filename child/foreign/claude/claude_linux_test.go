package claude_test

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
	"nexus.internal/child/foreign/claude"
	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

func options(fault string, more ...string) foreigntest.Options {
	return foreigntest.Options{Driver: claude.Driver{}, Command: foreigntest.Fake("claude", fault, more...)}
}

// TestTurns has turns of one conversation, each with what it leaves.
func TestTurns(t *testing.T) {
	a := foreigntest.Open(t, options("thinks"))
	for i, word := range []string{"one", "two"} {
		n := strconv.Itoa(i + 1)
		result, said := a.Turn(t.Context(), n, word)
		if u := result.Usage; result.Err != nil || result.Stop != protocol.StopCompleted || u.InputTokens != 3 || u.OutputTokens != 2 || u.Cost == nil || *u.Cost != 0.25 {
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
	if state.Name != "claude-code" || state.Version != "1" || !strings.HasPrefix(state.Session, "fake-") || state.Resumed != protocol.ResumedNew {
		t.Errorf("state: %+v", state)
	}
}

// TestFaults has two turns with each fault that leaves the program running.
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
			for _, turn := range []struct{ n, prompt string }{{"1", "hello, world"}, {"2", "on, and on"}} { // what came after the end is of no turn
				result, said := a.Turn(t.Context(), turn.n, turn.prompt)
				want := strings.NewReplacer("prompt 1", "prompt "+turn.n, "hello, world", turn.prompt).Replace(tt.want)
				if result.Err != nil || result.Stop != protocol.StopCompleted || said.Text() != want {
					t.Errorf("turn %s: %+v, got %.200q, want %.200q", turn.n, result, said.Text(), want)
				}
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
			if !errors.Is(result.Err, foreign.ErrEnded) || !strings.Contains(result.Err.Error(), tt.want) || said.Text() != "prompt 1: hello" {
				t.Errorf("result: %+v, %q, want %q", result, said.Text(), tt.want)
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

// TestCancel cancels turns, with and without text, and goes on after it.
func TestCancel(t *testing.T) {
	a := foreigntest.Open(t, options("waits"))
	for _, n := range []string{"1", "2"} {
		result, said := a.Cancelled(t.Context(), n, "hello", "hello")
		if result.Err != nil || result.Stop != protocol.StopAborted || said.Text() != "prompt "+n+": hello" {
			t.Errorf("turn %s: %+v, %q", n, result, said.Text())
		}
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
	before := foreigntest.Children(t)
	if _, err := foreigntest.TryOpen(t, options("exit-at-start")); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a program that exits: %v", err)
	}
	o := options("never-initialize")
	o.Timeout = 100 * time.Millisecond
	if _, err := foreigntest.TryOpen(t, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer initialize in time") {
		t.Errorf("a program that answers nothing: %v", err)
	}
	if diff := cmp.Diff(before, foreigntest.Children(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("processes (-before +after):\n%s", diff)
	}
}

// TestLogin fails a turn, with the reason by which people see that a key is missing.
func TestLogin(t *testing.T) {
	a := foreigntest.Open(t, options("wants-login"))
	result, said := a.Turn(t.Context(), "1", "hello")
	if e, ok := errors.AsType[*foreign.TurnError](result.Err); !ok || e.Reason != protocol.Credentials || !strings.Contains(e.Message, "Please run /login") || said.Text() != "" {
		t.Errorf("result: %+v, %q", result, said.Text())
	}
}

// TestCalls tells of a call once, with its input and its result, and of what it does not know as it is.
func TestCalls(t *testing.T) {
	a := foreigntest.Open(t, options("runs"))
	_, said := a.Turn(t.Context(), "1", "hello")
	starts, inputs, results := foreigntest.Only[protocol.ToolcallStart](said), foreigntest.Only[protocol.ToolcallInput](said), foreigntest.Only[protocol.ToolcallResult](said)
	if len(starts) != 1 || starts[0].ToolName != "Bash" || len(inputs) != 1 || string(inputs[0].Input) != `{"command":"thing"}` || len(results) != 1 || results[0].Result != "out" {
		t.Errorf("events: %+v", said.All)
	}
	a = foreigntest.Open(t, options("unknown-updates"))
	result, said := a.Turn(t.Context(), "1", "hello")
	if got := foreigntest.Only[protocol.Foreign](said); result.Err != nil || len(got) != 3 || said.Text() != "prompt 1: hello" {
		t.Errorf("result: %+v, events: %+v", result, said.All)
	}
}

// TestPermission answers a question in each way.
func TestPermission(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer protocol.PermissionResponse
		want   string
	}{
		{"once", protocol.PermissionResponse{Decision: protocol.AllowOnce}, `{"behavior":"allow","updatedInput":{"command":"touch made"}}`},
		// nexus remembers it: the program asks again.
		{"session", protocol.PermissionResponse{Decision: protocol.AllowSession}, `{"behavior":"allow","updatedInput":{"command":"touch made"}}`},
		{"named", protocol.PermissionResponse{Decision: protocol.AllowSession, OptionID: "allow_session"}, `{"behavior":"allow","updatedInput":{"command":"touch made"},` +
			`"updatedPermissions":[{"behavior":"allow","destination":"session","rules":[{"toolName":"Bash","ruleContent":"touch *"}],"type":"addRules"}]}`},
		{"no", protocol.PermissionResponse{Decision: protocol.Deny, Reason: "not today"}, `{"behavior":"deny","message":"not today"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options("asks")
			o.Client = &foreigntest.Client{Answer: tt.answer, Questions: make(chan foreign.Question, 1)}
			result, said := foreigntest.Open(t, o).Turn(t.Context(), "1", "hello")
			got := strings.TrimPrefix(said.Text(), "prompt 1: hello answer: ")
			if result.Err != nil || normal(t, got) != normal(t, tt.want) {
				t.Errorf("result: %+v, answer %s, want %s", result, got, tt.want)
			}
			q := <-o.Client.Questions
			if q.Action != protocol.ActionExecute || q.Command != "touch made" || q.Name != "Bash" || len(q.Options) != 3 {
				t.Errorf("question: %+v", q)
			}
		})
	}
	// A question that nobody answers ends with the turn.
	o := options("asks")
	o.Client = &foreigntest.Client{Questions: make(chan foreign.Question, 1)}
	a := foreigntest.Open(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-o.Client.Questions
		cancel()
	}()
	if result, _ := a.Turn(ctx, "1", "hello"); result.Err != nil || result.Stop != protocol.StopAborted {
		t.Errorf("cancelled: %+v", result)
	}
}

// TestResume goes on with a conversation, or says that it cannot.
func TestResume(t *testing.T) {
	state := t.TempDir()
	first := foreigntest.Open(t, options("none", "--state", state))
	first.Turn(t.Context(), "1", "one")
	o := options("none", "--state", state)
	o.Resume, o.Began = first.State().Session, true
	again := foreigntest.Open(t, o)
	if _, said := again.Turn(t.Context(), "2", "two"); said.Text() != "prompt 2: two" || again.State().Resumed != protocol.ResumedByProgram {
		t.Errorf("said %q, state %+v", said.Text(), again.State())
	}
	o = options("resume-fails", "--state", state)
	o.Resume, o.Began = first.State().Session, true
	lost := foreigntest.Open(t, o)
	if s := lost.State(); s.Resumed != protocol.ResumedByContext || !strings.Contains(s.ResumeReason, "No conversation found") {
		t.Errorf("state: %+v", s)
	}
}

// TestModels changes the model, unless the program does not want to.
func TestModels(t *testing.T) {
	a := foreigntest.Open(t, options("none"))
	if got := a.Setter().Models(); len(got) != 2 || a.Model() != "small" {
		t.Errorf("models: %+v, %q", got, a.Model())
	}
	if err := a.SetModel(t.Context(), "huge"); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("another model: %v", err)
	}
	if err := a.SetModel(t.Context(), "large"); err != nil || a.Model() != "large" {
		t.Errorf("its model: %v, %q", err, a.Model())
	}
}

// TestDeaf gives up a program that reads no more.
func TestDeaf(t *testing.T) {
	a := foreigntest.Open(t, options("deaf"))
	result, _ := a.Turn(t.Context(), "1", strings.Repeat("x", 1<<20))
	if !errors.Is(result.Err, foreign.ErrEnded) || !strings.Contains(result.Err.Error(), "did not read its input") {
		t.Errorf("result: %+v", result)
	}
}
