package child_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child"
	"nexus.internal/child/parent"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// caller is a provider that calls the tool which the prompt names, and then says
// what that gave. It waits where the prompt says so, and summarises never.
type caller struct{ puppet }

func (c caller) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		last := r.Messages[len(r.Messages)-1]
		stop := provider.Stop{Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 2}}
		name, calls := strings.CutPrefix(last.Content, "call ")
		switch {
		case strings.HasPrefix(r.System, "Summarise"), last.Content == "retry" && yield(provider.Retry{Reason: "429"}, nil):
			<-ctx.Done()
			yield(nil, ctx.Err())
		case last.Role == protocol.RoleTool:
			_ = yield(provider.Text{Text: last.Content}, nil) && yield(stop, nil)
		case calls:
			_ = yield(provider.Call{ToolCall: protocol.ToolCall{ID: "c1", Name: name, Input: jsontext.Value(`{"seconds":3600}`)}}, nil) && yield(stop, nil)
		default:
			_ = yield(provider.Text{Text: "done"}, nil) && yield(stop, nil)
		}
	}
}

// asker is a tool that asks the parent.
type asker struct {
	name string
	ask  func(ctx context.Context, c tool.Call) (string, error)
}

func (a asker) Spec() tool.Spec { return tool.Spec{Name: a.name, InputSchema: []byte(`{}`)} }

func (asker) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone}, nil
}

func (a asker) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	text, err := a.ask(ctx, c)
	return tool.Result{Text: text, Changed: []string{"/changed"}}, err
}

// askers are the tools of an Env.
type askers []tool.Tool

func (a askers) Tools() []tool.Tool { return a }

// asking is a child whose tools ask its parent.
func asking(t *testing.T) child.Options {
	o := options()
	o.Start.Provider, o.Start.Offline, o.Start.ContextWindow = caller{}, false, 20_000
	o.Parent = parent.New(parent.Options{Approvals: parent.Ask, HostCalls: true, Deadline: time.Minute})
	w, err := toolenv.Open(toolenv.Options{
		Cwd: t.TempDir(), Permissions: protocol.Permissions{Preset: "yolo"}, Parent: o.Parent, Sources: []toolenv.Source{askers{
			asker{"host", func(ctx context.Context, c tool.Call) (string, error) {
				result, err := o.Parent.Call(ctx, c.TurnID, "send", jsontext.Value(`{"agent_id":"b"}`))
				return string(result), err
			}},
			asker{"may", func(ctx context.Context, c tool.Call) (string, error) {
				answer, err := o.Parent.Permission(ctx, protocol.PermissionRequest{TurnID: c.TurnID, Input: jsontext.Value(`{}`), Paths: []string{}})
				if err == nil && answer.Decision == protocol.Deny {
					err = errors.New(answer.Reason)
				}
				return "allowed", err
			}},
			asker{"deaf", func(ctx context.Context, c tool.Call) (string, error) {
				<-ctx.Done()
				<-time.After(time.Hour)
				return "", nil
			}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	o.ToolEnv = w
	return o
}

const (
	started = `< {"event":{"type":"toolcall_start","tool_id":"c1"}}`
	input   = `< {"event":{"type":"toolcall_input","tool_id":"c1"}}`
	result  = `< {"event":{"type":"toolcall_result","tool_id":"c1"}}`
)

// What a call asks the parent comes before its result, whoever ends the wait,
// and all of it before the end of the turn.
func TestQuestionsComeInOrder(t *testing.T) {
	done := []string{text, `< {"type":"agent_end","stop_reason":"completed"}`, `< {"type":"response","id":"1","ok":true}`}
	tests := []struct {
		name   string
		script []string
	}{
		{"a permission", append([]string{
			`> {"type":"prompt","id":"1","message":"call may"}`, started, input,
			`< {"type":"permission_request","request_id":"*","turn_id":"1","deadline":"*"}`,
			`> {"type":"permission_response","id":"7","request_id":"QUESTION","decision":"allow_once"}`,
			`< {"type":"response","id":"7","ok":true}`,
			`< {"type":"permission_end","request_id":"QUESTION","outcome":"allowed"}`,
			result,
		}, done...)},
		{"a permission that is not given in time", append([]string{
			`> {"type":"prompt","id":"1","message":"call may"}`, started, input,
			`< {"type":"permission_request"}`,
			`< {"type":"permission_end","request_id":"QUESTION","outcome":"expired"}`,
			result,
		}, done...)},
		{"a call of the parent", append([]string{
			`> {"type":"prompt","id":"1","message":"call host"}`, started, input,
			`< {"type":"host_call","call_id":"*","turn_id":"1","method":"send"}`,
			`> {"type":"host_result","id":"7","call_id":"h1","result":{}}`,
			`< {"type":"response","id":"7","command":"host_result","ok":false}`,
			`> {"type":"host_result","id":"8","call_id":"QUESTION","result":{"n":1}}`,
			`< {"type":"response","id":"8","ok":true}`,
			`< {"event":{"type":"toolcall_result","result":"{\"n\":1}"}}`,
		}, done...)},
		{"an abort withdraws them", []string{
			`> {"type":"prompt","id":"1","message":"call host"}`, started, input,
			`< {"type":"host_call"}`, abort, `< {"type":"host_cancel","call_id":"QUESTION"}`,
			result, aborted, cancelled, abortOK,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playHere(t, asking(t), tt.script) })
		})
	}
}

// Whatever a turn waits for, an abort ends it within 100 ms (SPEC §3.4).
func TestAbortIsSwift(t *testing.T) {
	tests := []struct {
		name, prompt string
		// before and after are the frames of the turn up to where it waits, and
		// between the abort and the end.
		before, after []string
		turns         int // that went before: the context is full of them
	}{
		{name: "a silent model", prompt: "retry"},
		{name: "a summary", prompt: "hello", turns: 4},
		{name: "a tool that is asleep", prompt: "call sleep", before: []string{started, input}, after: []string{result}},
		{name: "a tool that does not listen", prompt: "call deaf", before: []string{started, input}, after: []string{result}},
		{
			name: "an approval", prompt: "call may", before: []string{started, input, `< {"type":"permission_request"}`},
			after: []string{`< {"type":"permission_end","outcome":"cancelled"}`, result},
		},
		{
			name: "the parent", prompt: "call host", before: []string{started, input, `< {"type":"host_call"}`},
			after: []string{`< {"type":"host_cancel"}`, result},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := asking(t)
				for range tt.turns {
					o.State.Messages = append(o.State.Messages, protocol.Message{Role: protocol.RoleUser, Content: strings.Repeat("long ", 3000)},
						protocol.Message{Role: protocol.RoleAssistant, Content: "ok"})
				}
				p := start(t, t.Context(), o)
				p.want(`{"type":"ready"}`)
				p.send(`{"type":"prompt","id":"1","message":"` + tt.prompt + `"}`)
				for _, frame := range tt.before {
					p.want(frame[2:])
				}
				synctest.Wait()
				begin := time.Now() // of the bubble's clock, which stands still however busy the machine is
				p.send(abort[2:])
				for _, frame := range append(tt.after, aborted, cancelled, abortOK) {
					p.want(frame[2:])
				}
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("took %v", took)
				}
				p.stdin.Close()
				if err := <-p.done; err != nil {
					t.Error(err)
				}
				if err := o.ToolEnv.Tools().Wait(t.Context()); err != nil { // for the one that does not listen
					t.Error(err)
				}
			})
		})
	}
}
