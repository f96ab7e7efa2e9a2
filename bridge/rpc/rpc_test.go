package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// The table of errors: status, code, data.type and message.
func TestToError(t *testing.T) {
	for _, test := range []struct {
		err     error
		status  int
		code    int
		kind    string
		message string
	}{
		{supervisor.ErrQueueFull, 200, -32001, "QUEUE_FULL", "Resource unavailable"},
		{supervisor.ErrBusy, 200, -32001, "AGENT_BUSY", "Resource unavailable"},
		{supervisor.ErrFailed, 200, -32001, "AGENT_FAILED", "Resource unavailable"},
		{supervisor.ErrStopped, 200, -32001, "AGENT_STOPPED", "Resource unavailable"},
		{&supervisor.CycleError{Path: []string{"a", "a"}}, 200, -32001, "WOULD_DEADLOCK", "Resource unavailable"},
		{supervisor.ErrNoRequest, 200, -32602, "PERMISSION_REQUEST_NOT_FOUND", "Permission request not found"},
		{supervisor.ErrDraining, 503, -32001, "SERVER_DRAINING", "Resource unavailable"},
		{supervisor.ErrTurnTimeout, 200, -32000, "TIMEOUT", "Execution timeout"},
		{context.DeadlineExceeded, 200, -32000, "TIMEOUT", "Execution timeout"},
		{&supervisor.CrashError{Incarnation: 2}, 200, -32000, "CHILD_CRASHED", "Execution failed"},
		{&supervisor.StartError{Err: errors.New("x")}, 200, -32000, "START_FAILED", "Execution failed"},
		{&supervisor.StartError{Err: &supervisor.HandshakeError{Err: errors.New("x")}}, 200, -32000, "START_FAILED", "Execution failed"},
		{&supervisor.StartError{Err: &supervisor.SessionError{Name: "a", InUse: true}}, 200, -32001, "SESSION_IN_USE", "Resource unavailable"},
		{&supervisor.StartError{Err: &supervisor.SessionError{Name: "a"}}, 200, -32000, "SESSION_DAMAGED", "Session damaged: a"},
		{&supervisor.CrashError{Incarnation: 2, Session: &supervisor.SessionError{Name: "a"}}, 200, -32000, "SESSION_DAMAGED", "Session damaged: a"},
		{&supervisor.ChildError{Message: "x"}, 200, -32603, "EXECUTION_ERROR", "x"},
		{&supervisor.CommandError{Err: errors.New("x")}, 200, -32602, "INVALID_PARAMS", "Invalid params: too large for the agent"},
		{api.Invalid("p", "x"), 200, -32602, "INVALID_PARAMS", "Invalid parameter p: x"},
		{
			supervisor.ErrTurnConflict, 200, -32602, "REQUEST_ID_CONFLICT",
			"Invalid parameter request_id: was used before with other content",
		},
		{rpc.AgentNotFound("a", rpc.ErrDestroyed), 404, -32602, "AGENT_NOT_FOUND", "Agent not found: a"},
		{errors.New("secret"), 200, -32603, "INTERNAL_ERROR", "Internal error"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			got := rpc.ToError(fmt.Errorf("wrapped: %w", test.err))
			if got.Status != test.status || int(got.Err.Code) != test.code || got.Err.Data.Type != test.kind || got.Err.Message != test.message {
				t.Errorf("got %d %v %s, want %d %d %s %q", got.Status, got.Err, got.Err.Data.Type, test.status, test.code, test.kind, test.message)
			}
		})
	}
}

// What an error advises fits what happened, and the method that was called.
func TestAdvice(t *testing.T) {
	const (
		room  = "Make room on the server's disk, or its home writable, then send it again."
		files = "Close connections that nobody needs, or start the server where it may open more files, then send it again."
	)
	none := func(err error) error { // as of a record that cannot be made: there never was a process
		return &supervisor.StartError{Err: &fs.PathError{Op: "mkdir", Path: "/home/sessions/a.records", Err: err}}
	}
	dir := func(err error) *supervisor.DirError { return &supervisor.DirError{Agent: "a", Dir: "/d", Err: err} }
	const again = `, and call shutdown of agent a: its next request starts it. Then set_cwd {"cwd":"/DIR"} of agent a moves it elsewhere.`
	for _, test := range []struct {
		method api.Method
		err    error
		want   string
	}{
		{api.CreateAgent.Row(), &supervisor.StartError{Err: dir(syscall.ENOENT)}, "Make the directory again, an empty one will do, then send it again."},
		{api.CreateAgent.Row(), &supervisor.StartError{Err: dir(syscall.EACCES)}, "Let the server's user enter the directory, then send it again."},
		{api.Send.Row(), &supervisor.CrashError{Incarnation: 2, Dir: dir(syscall.ENOENT)}, "Make the directory again, an empty one will do" + again},
		{api.Send.Row(), &supervisor.CrashError{Incarnation: 2, Dir: dir(syscall.EACCES)}, "Let the server's user enter the directory" + again},
		{api.CreateAgent.Row(), none(syscall.ENOSPC), room},
		{api.CreateAgent.Row(), none(syscall.EROFS), room},
		{api.CreateAgent.Row(), none(syscall.EMFILE), files},
		{api.CreateAgent.Row(), none(fs.ErrNotExist), "Correct what the details name, then send it again."},
		{api.CreateAgent.Row(), &supervisor.StartError{Err: errors.New("x"), Exit: &supervisor.Exit{Code: 2}}, "Correct what the process complains of, then send it again."},
		{api.Send.Row(), syscall.EMFILE, files},
		{api.Send.Row(), &supervisor.CrashError{Incarnation: 2}, "Send it again with a new request_id: the agent comes back with its conversation."},
		{api.Send.Row(), &supervisor.CrashError{Incarnation: 7, Reason: supervisor.ReasonStart}, "Correct the cause, then call shutdown of the agent: its next request starts it afresh, with its conversation."},
		{api.Compact.Row(), &supervisor.CrashError{Incarnation: 2}, "Send it again: the agent comes back with its conversation."},
		{api.Send.Row(), &supervisor.ChildError{Reason: protocol.BudgetExceeded, Message: "set_limits can raise limits.tokens"}, "Raise limits.tokens with set_limits."},
		{api.Send.Row(), &supervisor.ChildError{Reason: protocol.BudgetExceeded, Message: "set_limits can raise limits.cost_usd"}, "Raise limits.cost_usd with set_limits."},
		{api.Send.Row(), &supervisor.ChildError{Reason: protocol.BudgetExceeded, Message: "agent a may spend $5.00, and what model \"m\" costs is not known: add its price, or lift limits.cost_usd"}, "Add the price to config.json and have the server read it again (SIGHUP), or set limits.cost_usd to 0, no limit, with set_limits of agent a."},
		{api.Send.Row(), &supervisor.ChildError{Reason: protocol.BudgetExceeded, Message: "agent boss has used 735 of its 10 tokens: set_limits can raise limits.tokens"}, "Raise limits.tokens with set_limits of agent boss."},
		{api.Compact.Row(), &supervisor.ChildError{Reason: protocol.Busy}, "Send it again when the turn or the compaction has ended. A turn can be cancelled."},
	} {
		t.Run(test.method.Name+" "+test.err.Error(), func(t *testing.T) {
			if got := rpc.ToErrorOf(test.method, test.err).Err.Data.RecoverySuggestions; len(got) != 1 || got[0] != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// An error of an agent's process names the method that was called, not the command that the process was sent.
func TestMethodIsNamed(t *testing.T) {
	for _, test := range []struct {
		method        api.Method
		command, want string
	}{
		{api.GetSettings.Row(), protocol.SetSettings{}.Name(), "get_settings: an agent of kind acp does not offer this"},
		{api.ListTools.Row(), protocol.ToolsList{}.Name(), "list_tools: an agent of kind acp does not offer this"},
		{api.Compact.Row(), protocol.Compact{}.Name(), "compact: an agent of kind acp does not offer this"},
	} {
		err := &supervisor.ChildError{Command: test.command, Message: test.command + ": an agent of kind acp does not offer this", Reason: protocol.Unsupported}
		if got := rpc.ToErrorOf(test.method, err).Err.Message; got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestBatchAnswerLimit(t *testing.T) {
	const part = 6 << 20 // bytes: two fit, the third does not, a small one does again
	responses := []*jsonrpc.Response{}
	for _, size := range []int{part, part, part, 1} {
		responses = append(responses, &jsonrpc.Response{
			ID: jsonrpc.NumberID(int64(len(responses))), Result: []byte(`"` + strings.Repeat("x", size) + `"`),
		})
	}
	body, status := rpc.JoinBatch(responses, make([]int, len(responses)))
	if status != 200 {
		t.Errorf("got HTTP %d, want 200", status)
	}
	var failed []string
	for _, answer := range gjson.ParseBytes(body).Array() {
		failed = append(failed, answer.Get("error.data.type").Str)
	}
	if got, want := fmt.Sprintf("%q", failed), `["" "" "RESPONSE_TOO_LARGE" ""]`; got != want {
		t.Errorf("got errors %s, want %s", got, want)
	}
}

func TestAppendEventKeepsTheFraming(t *testing.T) {
	for _, test := range []struct{ name, kind, data, want string }{
		{"plain", "ready", `{"type":"ready"}`, "id: 7\nevent: ready\ndata: {\"type\":\"ready\"}\n\n"},
		{"line breaks between tokens", "x", "{\r\n}", "id: 7\nevent: x\ndata: {  }\n\n"},
		{"a type that breaks the line", "a\nid: 9", "{}", "id: 7\nevent: unknown\ndata: {}\n\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := string(rpc.AppendEvent(nil, "7", test.kind, []byte(test.data))); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// anyone lets everybody call everything of agent "a".
type anyone struct{}

func (anyone) Find(id string) error {
	if id != "a" {
		return rpc.AgentNotFound(id, supervisor.ErrNotFound)
	}
	return nil
}

func (anyone) Depart(context.Context, *rpc.Call, api.Method) (func(), error) {
	return func() {}, nil
}
func (anyone) Permit(context.Context, *rpc.Call, api.Method) error { return nil }

func (anyone) Enter(context.Context, []string, bool) (func(), error) { return func() {}, nil }
func (anyone) Moved(agent, machine string) error {
	return &rpc.MovedError{Agent: agent, Machine: machine, Err: supervisor.ErrMoved}
}
func (anyone) Root(id string) string { return id }

func router() *rpc.Router {
	return rpc.NewRouter(rpc.Options{Access: anyone{}, Metrics: metrics.New(metrics.Options{Supervisor: supervisor.New(supervisor.Options{})}), Log: zap.NewNop()})
}

// panics reports whether f does.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// A program whose methods lack a handler, or have two, does not start.
func TestEveryMethodHasOneHandler(t *testing.T) {
	r := router()
	cancel := func(context.Context, *rpc.Call, api.CancelParams) (api.CancelResult, error) {
		return api.CancelResult{}, nil
	}
	rpc.Handle(r, api.Cancel, cancel)
	if !panics(r.MustBeWhole) || !panics(func() { rpc.Handle(r, api.Cancel, cancel) }) {
		t.Error("it does not notice")
	}
}

// What a call is refused for comes in one order, and the handler runs last. A panic in it is
// an error of its call, which the log has and the client has not.
func TestServe(t *testing.T) {
	r := router()
	rpc.Handle(r, api.Cancel, func(_ context.Context, c *rpc.Call, p api.CancelParams) (api.CancelResult, error) {
		if p.RequestID == "panic" {
			panic("secret")
		}
		return api.CancelResult{RequestID: p.RequestID}, nil
	})
	rpc.Handle(r, api.DestroyAgent, func(_ context.Context, c *rpc.Call, p api.AgentIDParams) (api.DestroyAgentResult, error) {
		return api.DestroyAgentResult{AgentID: p.AgentID}, nil
	})
	caller := &supervisor.Caller{AgentID: "b", TurnID: "turn"}
	for _, test := range []struct {
		name string
		call rpc.Call
		want string // the result, or the type of the error
	}{
		{"no such agent, no such method", rpc.Call{Agent: "x", Request: jsonrpc.Request{Method: "nosuch"}}, "AGENT_NOT_FOUND"},
		{"no such method", rpc.Call{Agent: "a", Request: jsonrpc.Request{Method: "nosuch"}}, "METHOD_NOT_FOUND"},
		{"of another place", rpc.Call{Agent: "a", Request: jsonrpc.Request{Method: "destroy_agent"}}, "METHOD_NOT_FOUND"},
		{"parameters", rpc.Call{Request: jsonrpc.Request{Method: "cancel", Params: []byte(`{"request_id":5}`)}}, "INVALID_PARAMS"},
		{"positional", rpc.Call{Request: jsonrpc.Request{Method: "cancel", Positional: true}}, "INVALID_PARAMS"},
		{"a panic", rpc.Call{Request: jsonrpc.Request{Method: "cancel", Params: []byte(`{"request_id":"panic"}`)}}, "INTERNAL_ERROR"},
		{"served", rpc.Call{Request: jsonrpc.Request{Method: "cancel", Params: []byte(`{"request_id":"r"}`)}}, `{"cancelled":false,"request_id":"r"}`},
		{"not for agents", rpc.Call{By: rpc.Principal{Agent: caller}, Request: jsonrpc.Request{Method: "create_key"}}, "NOT_PERMITTED"},
		{
			"of an agent",
			rpc.Call{By: rpc.Principal{Agent: caller}, Request: jsonrpc.Request{Method: "cancel", Params: []byte(`{"agent_id":"a","request_id":"r"}`)}},
			`{"cancelled":false,"request_id":"r"}`,
		},
	} {
		test.call.Request.ID = jsonrpc.NumberID(1)
		response, record := r.Serve(t.Context(), &test.call, nil)
		got := string(response.Result)
		if response.Error != nil {
			got = response.Error.Data.Type
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
		if fault := record.Fault != nil; fault != (test.want == "INTERNAL_ERROR") || fault && strings.Contains(response.Error.Message, "secret") {
			t.Errorf("%s: fault %v, told %v", test.name, record.Fault, response.Error)
		}
	}
}
