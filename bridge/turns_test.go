package bridge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// sent is what a send in the background came to.
type sent struct {
	result api.SendResult
	err    error
}

// begin sends in the background and returns once the turn runs.
func (r *rig) begin(agent, requestID string) <-chan sent {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx())
	events := make(chan struct{})
	var once sync.Once
	ready := make(chan struct{})
	go func() {
		defer close(events)
		for event, err := range r.client.Events(ctx, agent, 0, client.Filter{}) {
			if err != nil {
				return
			}
			if event.Type == "turn_start" && strings.Contains(string(event.Data), `"`+requestID+`"`) {
				once.Do(func() { close(ready) })
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-events })
	done := r.sendAsync(agent, api.SendParams{Content: "go", RequestID: &requestID})
	select {
	case <-ready:
	case s := <-done:
		r.t.Fatalf("send %s ended before it ran: %+v", requestID, s)
	case <-ctx.Done():
		r.t.Fatalf("send %s never ran", requestID)
	}
	return done
}

func (r *rig) sendAsync(agent string, p api.SendParams) <-chan sent {
	done := make(chan sent, 1)
	ctx := r.ctx()
	go func() {
		result, err := client.Do(ctx, r.client, agent, api.Send, p)
		done <- sent{result, err}
	}()
	return done
}

// queued waits until n sends to the one agent wait.
func (r *rig) queued(agent string, n int) {
	r.t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; {
		list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
		if err != nil {
			r.t.Fatal(err)
		}
		if at := slices.IndexFunc(list.Agents, func(a api.AgentInfo) bool { return a.AgentID == agent }); at >= 0 && list.Agents[at].Queued == n {
			return
		}
	}
	r.t.Fatalf("no %d sends wait for %s", n, agent)
}

func (r *rig) await(done <-chan sent) sent {
	r.t.Helper()
	select {
	case s := <-done:
		return s
	case <-time.After(patience):
		r.t.Fatal("the send was never answered")
		return sent{}
	}
}

func rpcError(t *testing.T, err error) *client.RPCError {
	t.Helper()
	e, ok := errors.AsType[*client.RPCError](err)
	if !ok {
		t.Fatalf("got error %v, want an error of the server", err)
	}
	return e
}

func wantError(t *testing.T, err error, code jsonrpc.Code, kind string, status int) *client.RPCError {
	t.Helper()
	e := rpcError(t, err)
	if e.Code != int(code) || e.Data.Type != kind || e.HTTPStatus != status {
		t.Errorf("got %d %s with HTTP %d (%v), want %d %s with HTTP %d", e.Code, e.Data.Type, e.HTTPStatus, e, code, kind, status)
	}
	return e
}

func TestCancelFromAnotherClient(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	running := r.begin("a", "run")
	waiting := r.sendAsync("a", api.SendParams{Content: "later", RequestID: new("wait")})

	other, err := client.New(client.Options{URL: r.client.URL(), Key: r.key})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, id := range []string{"wait", "run"} {
		// The second send may not have arrived yet: ask until it is there.
		for {
			got, err := client.Do(r.ctx(), other, "a", api.Cancel, api.CancelParams{RequestID: id})
			if err != nil {
				t.Fatal(err)
			}
			if got.Cancelled {
				break
			}
		}
	}
	for id, done := range map[string]<-chan sent{"run": running, "wait": waiting} {
		s := r.await(done)
		if s.err != nil || !s.result.Cancelled || s.result.RequestID != id || s.result.Content != nil {
			t.Errorf("send %s: got %+v, want it cancelled", id, s)
		}
	}
	again, err := client.Do(r.ctx(), other, "a", api.Cancel, api.CancelParams{RequestID: "run"})
	if err != nil || !again.Cancelled || again.Reason != "" {
		t.Errorf("cancel of a cancelled turn: got %+v, %v", again, err)
	}
}

// A cancel that loses the race with the end of its turn says so: the sender
// has a whole answer.
func TestCancelThatComesTooLate(t *testing.T) {
	asked := make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{
				Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
					select {
					case <-asked:
						supervisortest.Echo(c, p)
					case <-c.Gone():
					}
				},
				Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
					if cmd.Name() == "abort" {
						c.Respond(cmd, map[string]bool{"ok": true})
						close(asked)
					}
					return cmd.Name() == "abort"
				},
			}
		}
		o.DrainTimeout = time.Millisecond
	})
	r.create("a")
	running := r.begin("a", "r")
	got, err := client.Do(r.ctx(), r.client, "a", api.Cancel, api.CancelParams{RequestID: "r"})
	if err != nil || got.Cancelled || got.Reason != "not_found_or_completed" || got.RequestID != "r" {
		t.Errorf("cancel: got %+v, %v, want that it was too late", got, err)
	}
	if s := r.await(running); s.err != nil || s.result.Cancelled || *s.result.Content != "go" {
		t.Errorf("send: got %+v, want its answer", s)
	}
}

func TestBusyAgent(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	running := r.begin("a", "run")
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", WhenBusy: new(api.WhenBusyReject)})
	wantError(t, err, jsonrpc.CodeUnavailable, "AGENT_BUSY", 200)

	steered := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("steer"), WhenBusy: new(api.WhenBusySteer)})
	if s := r.await(running); !s.result.Cancelled {
		t.Errorf("the turn that was steered away: got %+v, want it cancelled", s)
	}
	for { // it runs next
		got, err := client.Do(r.ctx(), r.client, "a", api.Cancel, api.CancelParams{RequestID: "steer"})
		if err != nil {
			t.Fatal(err)
		}
		if got.Cancelled {
			break
		}
	}
	r.await(steered)
}

func TestQueueFull(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(supervisortest.UntilAborted)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error { s.QueueLimit = 1; return nil }}
	})
	r.create("a")
	r.begin("a", "run")
	// Two more: one waits, one does not fit.
	first := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("one")})
	second := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("two")})
	var s sent
	select {
	case s = <-first:
	case s = <-second:
	case <-time.After(patience):
		t.Fatal("neither send was refused")
	}
	wantError(t, s.err, jsonrpc.CodeUnavailable, "QUEUE_FULL", 200)
}

// What a key for less sends leaves places to the full key.
func TestQueueOfAKeyForLess(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	running := r.begin("a", "run")
	key, _ := r.scoped(auth.ScopeAgent, "a")
	for range 2 {
		items := make([]string, 100)
		for i := range items {
			items[i] = `{"jsonrpc":"2.0","method":"send","params":{"content":"x"}}`
		}
		r.post("/agent/a", "["+strings.Join(items, ",")+"]", "Authorization", key)
	}
	r.queued("a", 32)
	_, body := r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"x"}}`, "Authorization", key)
	if !strings.Contains(body, "QUEUE_FULL") || !strings.Contains(body, "32 prompts wait on behalf of this key or agent") {
		t.Errorf("one more of the key: %s", body)
	}
	_, body = r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x"}}`, "Authorization", key)
	if !strings.Contains(body, "QUEUE_FULL") {
		t.Errorf("a task of the key: %s", body)
	}
	waiting := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("waits")})
	r.queued("a", 33)
	steered := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("steer"), WhenBusy: new(api.WhenBusySteer)})
	if s := r.await(running); !s.result.Cancelled {
		t.Errorf("the turn that was steered away: got %+v, want it cancelled", s)
	}
	for id, done := range map[string]<-chan sent{"steer": steered, "waits": waiting} {
		for {
			got, err := client.Do(r.ctx(), r.client, "a", api.Cancel, api.CancelParams{RequestID: id})
			if err != nil {
				t.Fatal(err)
			}
			if got.Cancelled {
				break
			}
		}
		r.await(done)
	}
}

func TestTurnTimeout(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	for _, seconds := range []float64{0.01, 1e-12} { // the latter is no whole nanosecond, and still a limit
		_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", TimeoutS: &seconds})
		wantError(t, err, jsonrpc.CodeServerError, "TIMEOUT", 200)
	}
}

func TestCrashAndFailure(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		switch p.Message {
		case "crash":
			c.Say("half")
			c.Crash(supervisor.Exit{Code: 3, Stderr: "out of luck"})
		case "fail":
			c.Fail(p, "the model is gone")
		default:
			supervisortest.Echo(c, p)
		}
	}))
	r.create("a")
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "crash"})
	e := wantError(t, err, jsonrpc.CodeServerError, "CHILD_CRASHED", 200)
	for _, part := range []string{"incarnation 1", "exit status 3", "out of luck"} {
		if !strings.Contains(e.Data.Details, part) {
			t.Errorf("details %q do not say %q", e.Data.Details, part)
		}
	}
	// The next send waits for the restart.
	got, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello"})
	if err != nil || *got.Content != "hello" {
		t.Fatalf("send after the crash: %+v, %v", got, err)
	}
	_, err = client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "fail"})
	if e := wantError(t, err, jsonrpc.CodeInternalError, "EXECUTION_ERROR", 200); e.Message != "the model is gone" {
		t.Errorf("got message %q, want the child's own", e.Message)
	}
	list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
	if err != nil || list.Agents[0].Restarts != 1 || list.Agents[0].Incarnation != 2 ||
		protocol.Value(list.Agents[0].LastRestartReason) != "exit" {
		t.Errorf("list after the crash: %+v, %v", list, err)
	}
}

// What a failed agent's error advises does help.
func TestFailedAgent(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			if p.Message == "crash" {
				c.Crash(supervisor.Exit{Code: 3})
				return
			}
			supervisortest.Echo(c, p)
		})(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			s.Policy.Limit = -1
			return nil
		}}
	})
	r.create("a")
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "crash"})
	wantError(t, err, jsonrpc.CodeServerError, "CHILD_CRASHED", 200)
	_, err = client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x"})
	e := wantError(t, err, jsonrpc.CodeUnavailable, "AGENT_FAILED", 200)
	if advice := strings.Join(e.Data.RecoverySuggestions, " "); !strings.Contains(e.Data.Details, "exit status 3") ||
		!strings.Contains(advice, "shutdown") || !strings.Contains(advice, "destroy_agent") {
		t.Errorf("got details %q and advice %q", e.Data.Details, advice)
	}
	if _, err := client.Do(r.ctx(), r.client, "a", api.Shutdown, api.None{}); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x"}); err != nil || *got.Content != "x" {
		t.Errorf("after shutdown: %+v, %v", got, err)
	}
}

// A client that leaves must not take its turn with it: the work may be half
// done, and the outcome is there for whoever asks with the same request_id.
func TestDisconnectDoesNotStopTheTurn(t *testing.T) {
	release := make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		select {
		case <-release:
			supervisortest.Echo(c, p)
		case <-c.Gone():
		case <-c.Aborted():
			c.Finish(p, "")
		}
	}))
	r.create("a")
	ctx, leave := context.WithCancel(r.ctx())
	left := make(chan error, 1)
	go func() {
		_, err := client.Do(ctx, r.client, "a", api.Send, api.SendParams{Content: "hello", RequestID: new("r")})
		left <- err
	}()
	for { // until the turn runs
		list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
		if err != nil {
			t.Fatal(err)
		}
		if list.Agents[0].RequestID != nil {
			break
		}
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client's own error is %v", err)
	}
	joined := r.sendAsync("a", api.SendParams{Content: "hello", RequestID: new("r")})
	close(release)
	if s := r.await(joined); s.err != nil || s.result.Cancelled || *s.result.Content != "hello" {
		t.Errorf("got %+v, want the answer of the turn that went on", s)
	}
}

func TestCommandTimeout(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		o.CommandTimeout = time.Millisecond
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: func(_ *supervisortest.Child, cmd protocol.Command) bool {
				return cmd.Name() == "get_state" // and no answer
			}}
		}
	})
	r.create("a")
	_, err := client.Do(r.ctx(), r.client, "a", api.GetTokens, api.None{})
	wantError(t, err, jsonrpc.CodeServerError, "TIMEOUT", 200)
}
