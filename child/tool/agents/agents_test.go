package agents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/parent"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/agents"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testParent answers host calls from a list and writes down what it is told.
type testParent struct {
	*parent.Client
	t       *testing.T
	answers map[string]string // by method; a text that begins with ! is an error
	after   time.Duration     // before each answer
	told    []string
	done    chan struct{} // closed when listen has returned
	stop    chan struct{}
}

func newParent(t *testing.T, answers map[string]string) *testParent {
	p := &testParent{
		Client: parent.New(parent.Options{HostCalls: true}), t: t, answers: answers,
		done: make(chan struct{}), stop: make(chan struct{}),
	}
	go p.listen()
	return p
}

// end returns what was told.
func (p *testParent) end() []string {
	close(p.stop)
	<-p.done
	return p.told
}

func (p *testParent) listen() {
	defer close(p.done)
	for {
		select {
		case e := <-p.Events():
			p.take(e)
		case <-p.stop:
			for len(p.Events()) > 0 {
				p.take(<-p.Events())
			}
			return
		}
	}
}

func (p *testParent) take(e protocol.Event) {
	switch e := e.(type) {
	case protocol.HostCall:
		p.told = append(p.told, fmt.Sprintf("%s %s of %s", e.Method, e.Params, e.TurnID))
		answer, ok := p.answers[e.Method]
		if !ok {
			return // whoever waits gives up
		}
		r := protocol.HostResult{ID: "1", CallID: e.CallID, Result: jsontext.Value(answer)}
		if message, failed := strings.CutPrefix(answer, "!"); failed {
			r.Result, r.Error = nil, &protocol.HostError{Code: -1, Message: message}
		}
		time.AfterFunc(p.after, func() {
			if err := p.Answer(r); err != nil {
				p.t.Error(err)
			}
		})
	case protocol.HostCancel:
		p.told = append(p.told, "cancel")
	case protocol.SubagentStart:
		p.told = append(p.told, fmt.Sprintf("start %d %s: %s", e.SubagentID, e.AgentName, e.TaskPreview))
	case protocol.SubagentUpdate:
		p.told = append(p.told, fmt.Sprintf("update %d %s: %s", e.SubagentID, e.AgentName, e.Status))
	case protocol.SubagentDone:
		p.told = append(p.told, fmt.Sprintf("done %d %s after %v: %s", e.SubagentID, e.AgentName, e.DurationSecs, e.ResultPreview))
	default:
		p.t.Errorf("told %T", e)
	}
}

func find(t *testing.T, tools []tool.Tool, name string) tool.Scoped {
	t.Helper()
	for _, one := range tools {
		if one.Spec().Name == name {
			return one.(tool.Scoped)
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

func TestTools(t *testing.T) {
	for _, test := range []struct {
		name, tool, input string
		answers           map[string]string
		want              string // the text, or "error: " and the error
		told              []string
	}{
		{
			name: "send", tool: "nexus_send", input: `{"agent_id":"b","content":"do  this\nand that","timeout_s":2.5}`,
			answers: map[string]string{"send": `{"content":"done","request_id":"r","stop_reason":"completed"}`},
			want:    "done",
			told: []string{
				"start 1 b: do this and that",
				`send {"agent_id":"b","content":"do  this\nand that","timeout_s":2.5} of turn`,
				"done 1 b after 0: done",
			},
		},
		{
			name: "send that fails", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `!Agent not found: b`},
			want:    "error: Agent not found: b",
			told:    []string{"start 1 b: x", `send {"agent_id":"b","content":"x"} of turn`, "done 1 b after 0: failed: Agent not found: b"},
		},
		{
			name: "send that somebody cancelled", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `{"request_id":"r","cancelled":true}`},
			want:    "error: the message to b was cancelled before it was answered",
			told: []string{
				"start 1 b: x", `send {"agent_id":"b","content":"x"} of turn`,
				"done 1 b after 0: failed: the message to b was cancelled before it was answered",
			},
		},
		{
			name: "an answer that is not all", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `{"content":"head","request_id":"r","stop_reason":"max_iterations","truncated":true}`},
			want:    "head\n[this is the beginning of a longer answer]\n[b stopped at its limit of calls and may not be done]",
		},
		{
			name: "an answer that was cut off", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `{"content":"head","request_id":"r","stop_reason":"max_tokens"}`},
			want:    "head\n[this answer was cut off at its model's limit of tokens]",
		},
		{
			name: "an answer that was filtered", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `{"content":"head","request_id":"r","stop_reason":"content_filter"}`},
			want:    "head\n[this answer was cut off by its model's service (content filter)]",
		},
		{
			name: "no answer", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `{"content":"","request_id":"r"}`},
			want:    "[b has done its turn without saying anything]",
		},
		{
			name: "nonsense", tool: "nexus_send", input: `{"agent_id":"b","content":"x"}`,
			answers: map[string]string{"send": `[]`},
			want:    "error: read the answer to send: must be an object, is an array",
		},
		{
			name: "create", tool: "nexus_create", input: `{"agent_id":"b"}`,
			answers: map[string]string{"create_agent": `{"agent_id":"b","url":"/agent/b"}`},
			want:    "agent b is created",
			told:    []string{`create_agent {"agent_id":"b"} of turn`},
		},
		{
			name: "create all", tool: "nexus_create",
			input: `{"agent_id":"b","preset":"sandboxed","cwd":"/x","kind":"k","model":"m","system_prompt":"","allowed_write_paths":[],` +
				`"initial_message":"go"}`,
			answers: map[string]string{
				"create_agent": `{"agent_id":"b","restored":true,"message_count":4,"initial_request_id":"r","initial_response":{"content":"went","request_id":"r"}}`,
			},
			want: "agent b continues its saved conversation of 4 messages. It answered:\n\nwent",
			told: []string{
				"start 1 b: go",
				`create_agent {"agent_id":"b","preset":"sandboxed","cwd":"/x","kind":"k","model":"m","system_prompt":"","allowed_write_paths":[],` +
					`"initial_message":"go","wait_for_initial_response":true} of turn`,
				"done 1 b after 0: went",
			},
		},
		{
			name: "create and go on", tool: "nexus_create", input: `{"agent_id":"b","initial_message":"go","wait":false}`,
			answers: map[string]string{"create_agent": `{"agent_id":"b","initial_request_id":"r"}`},
			want:    "agent b is created. It works on the message, which has the request_id r",
			told:    []string{`create_agent {"agent_id":"b","initial_message":"go"} of turn`},
		},
		{
			name: "create, but", tool: "nexus_create", input: `{"agent_id":"b","initial_message":"go"}`,
			answers: map[string]string{"create_agent": `{"agent_id":"b","initial_request_id":"r","initial_error":{"code":1,"message":"no model"}}`},
			want:    "agent b is created, but the message came to nothing: no model (an error)",
		},
		{
			name: "create refused", tool: "nexus_create", input: `{"agent_id":"b","initial_message":"go"}`,
			answers: map[string]string{"create_agent": `!Agent already exists: b`},
			want:    "error: Agent already exists: b",
		},
		{
			name: "destroy", tool: "nexus_destroy", input: `{"agent_id":"b"}`,
			answers: map[string]string{"destroy_agent": `{"success":true,"agent_id":"b"}`},
			want:    "agent b is destroyed",
		},
		{
			name: "destroy nobody", tool: "nexus_destroy", input: `{"agent_id":"b"}`,
			answers: map[string]string{"destroy_agent": `{"success":false,"agent_id":"b"}`},
			want:    "error: there is no agent b",
		},
		{
			name: "cancel", tool: "nexus_cancel", input: `{"agent_id":"b","request_id":"r"}`,
			answers: map[string]string{"cancel": `{"cancelled":true,"request_id":"r"}`},
			want:    "request r of agent b is cancelled",
			told:    []string{`cancel {"agent_id":"b","request_id":"r"} of turn`},
		},
		{
			name: "cancel nothing", tool: "nexus_cancel", input: `{"agent_id":"b","request_id":"r"}`,
			answers: map[string]string{"cancel": `{"cancelled":false,"request_id":"r","reason":"not_found_or_completed"}`},
			want:    "error: agent b has no request r that waits or runs",
		},
		{
			name: "status of all", tool: "nexus_status", input: `{}`,
			answers: map[string]string{"list_agents": `{"agents":[{"agent_id":"a"},{"agent_id":"b"}]}`},
			want:    `{"agents":[{"agent_id":"a"},{"agent_id":"b"}]}`,
		},
		{
			name: "status of one", tool: "nexus_status", input: `{"agent_id":"b"}`,
			answers: map[string]string{
				"list_agents": `{"agents":[{"agent_id":"a"},{"agent_id":"b","state":"busy"}]}`,
				"get_tokens":  `{"total":5}`, "get_context": `{"message_count":2}`,
			},
			want: `{"agent":{"agent_id":"b","state":"busy"},"tokens":{"total":5},"context":{"message_count":2}}`,
		},
		{
			name: "shutdown", tool: "nexus_shutdown", input: `{}`,
			answers: map[string]string{"shutdown_server": `{"success":true}`},
			want:    "the server is going down",
		},
		{name: "bad input", tool: "nexus_send", input: `{"agent_id":"b"}`, want: `error: member "content" is missing`},
		{name: "unknown member", tool: "nexus_shutdown", input: `{"now":true}`, want: `error: member "now" is not known`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newParent(t, test.answers)
				one := find(t, agents.New(p.Client), test.tool)
				got, err := one.Run(t.Context(), tool.Call{TurnID: "turn", Input: jsontext.Value(test.input)})
				text := got.Text
				switch {
				case err != nil:
					text = "error: " + err.Error()
				case got.IsError:
					text += " (an error)"
				}
				if text != test.want {
					t.Errorf("got %q, want %q", text, test.want)
				}
				if told := p.end(); test.told != nil && !cmp.Equal(told, test.told) {
					t.Errorf("told (-want +got):\n%s", cmp.Diff(test.told, told))
				}
				scope, scopeErr := one.Scope(jsontext.Value(test.input))
				if scopeErr != nil && (err == nil || scopeErr.Error() != err.Error()) {
					t.Errorf("Scope: %v", scopeErr)
				}
				if scopeErr == nil && (scope.Action != protocol.ActionDelegate || scope.Summary == "") {
					t.Errorf("scope %+v", scope)
				}
			})
		})
	}
}

// While an agent waits for another, it gives signs of life; a cancel ends them,
// and the wait, and what was begun.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParent(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		_, err := find(t, agents.New(p.Client), "nexus_send").Run(ctx, tool.Call{TurnID: "turn", Input: jsontext.Value(`{"agent_id":"b","content":"x"}`)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v", err)
		}
		want := []string{
			"start 1 b: x", `send {"agent_id":"b","content":"x"} of turn`,
			"update 1 b: works since 10 s", "update 1 b: works since 20 s",
			"cancel", "done 1 b after 25: cancelled",
		}
		if told := p.end(); !cmp.Equal(told, want) {
			t.Errorf("told (-want +got):\n%s", cmp.Diff(want, told))
		}
	})
}

func TestPreviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("é ", 100_000)
		p := newParent(t, map[string]string{"send": `{"content":"` + long + `","request_id":"r"}`})
		send := find(t, agents.New(p.Client), "nexus_send")
		input := jsontext.Value(`{"agent_id":"b","content":"` + long + `"}`)
		for range 2 {
			if r, err := send.Run(t.Context(), tool.Call{Input: input}); err != nil || r.Text != long {
				t.Errorf("%d bytes, %v", len(r.Text), err)
			}
		}
		scope, _ := send.Scope(input)
		told := append(p.end(), scope.Summary)
		for i, prefix := range []string{"start 1", "send", "done 1", "start 2", "send", "done 2", "send to agent b"} {
			if !strings.HasPrefix(told[i], prefix) {
				t.Errorf("told %.20q, want %s", told[i], prefix)
			}
			if prefix != "send" && (len(told[i]) > 260 || !strings.HasSuffix(told[i], "…")) {
				t.Errorf("%d bytes: %q", len(told[i]), told[i])
			}
		}
	})
}

// The turn of another agent is waited for as long as it takes: with the end of the call
// it would be cancelled, and its work lost.
func TestLongTurns(t *testing.T) {
	for name, input := range map[string]string{
		"nexus_send":   `{"agent_id":"b","content":"x"}`,
		"nexus_create": `{"agent_id":"b","initial_message":"x"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newParent(t, map[string]string{
				"send":         `{"content":"done","request_id":"r"}`,
				"create_agent": `{"agent_id":"b","url":"/agent/b","initial_response":{"content":"done","request_id":"r"}}`,
			})
			p.after = 3 * time.Hour
			r := tool.NewRegistry(agents.New(p.Client), tool.Options{})
			got := r.Run(t.Context(), "turn", []protocol.ToolCall{{ID: "1", Name: name, Input: jsontext.Value(input)}}, nil)
			p.end()
			if got[0].IsError || !strings.HasSuffix(got[0].Text, "done") {
				t.Errorf("%s: %+v", name, got[0])
			}
		})
	}
}

func TestNoHost(t *testing.T) {
	if tools := agents.New(nil); len(tools) > 0 {
		t.Errorf("%d tools without a parent", len(tools))
	}
	if tools := agents.New(parent.New(parent.Options{})); len(tools) > 0 {
		t.Errorf("%d tools of a parent that takes no calls", len(tools))
	}
}
