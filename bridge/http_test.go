package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/httpd"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

const (
	list     = `{"jsonrpc":"2.0","method":"list_agents","id":1}`
	discover = `{"jsonrpc":"2.0","method":"rpc.discover","id":1}`
)

// wantWhole checks that a body is a whole JSON-RPC error.
func wantWhole(t *testing.T, body string, code jsonrpc.Code) {
	t.Helper()
	answer, err := jsonrpc.DecodeResponse([]byte(body))
	if err != nil || answer.Error == nil {
		t.Fatalf("body %q is no JSON-RPC error: %v", body, err)
	}
	if answer.Error.Code != code || answer.Error.Data == nil || answer.Error.Data.Type == "" {
		t.Errorf("got error %s, want code %d with data", body, code)
	}
}

func TestBodyLimits(t *testing.T) {
	r := rigged(t, nil)
	fits := list + strings.Repeat(" ", httpd.MaxBody-len(list))
	for _, test := range []struct {
		name    string
		body    string
		chunked bool
		want    int
	}{
		{"declared, at the limit", fits, false, 200},
		{"declared, one more", fits + " ", false, 413},
		{"chunked, at the limit", fits, true, 200},
		{"chunked, one more", fits + " ", true, 413},
	} {
		t.Run(test.name, func(t *testing.T) {
			var body io.Reader = strings.NewReader(test.body)
			if test.chunked {
				body = io.MultiReader(body) // whose length net/http does not know
			}
			response, answer := r.do("POST", "/rpc", body)
			if response.StatusCode != test.want {
				t.Fatalf("got HTTP %d %.100s, want %d", response.StatusCode, answer, test.want)
			}
			if test.want == 413 {
				wantWhole(t, answer, jsonrpc.CodeInvalidRequest)
			}
		})
	}
}

func TestSlowRequests(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.ReadTimeout = time.Second }) // from the connection's begin: the machine may be busy
	for _, test := range []struct{ name, sent string }{
		{"in the request line", "POST /r"},
		{"in the headers", r.head("POST /rpc HTTP/1.1")},
		{"before the body", r.head("POST /rpc HTTP/1.1") + "Content-Length: 50\r\n\r\n"},
		{"in the body", r.head("POST /rpc HTTP/1.1") + "Content-Length: 50\r\n\r\n{"},
		{"in a chunk", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: chunked\r\n\r\n5\r\n{"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // it is waiting
			response, body := r.raw(test.sent)
			if response.StatusCode != http.StatusRequestTimeout || !response.Close {
				t.Errorf("got HTTP %d, close %v, want 408 and the end", response.StatusCode, response.Close)
			}
			wantWhole(t, body, jsonrpc.CodeInvalidRequest)
		})
	}
}

// The limit on the time of a request must not count the time of its answer.
func TestReadTimeoutSparesSlowAnswers(t *testing.T) {
	t.Parallel() // it is waiting
	const readTimeout = time.Second
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			c.Sleep(2 * readTimeout)
			supervisortest.Echo(c, p)
		})(r, o)
		o.ReadTimeout = readTimeout
	})
	r.create("a")
	got, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello"})
	if err != nil || *got.Content != "hello" {
		t.Errorf("got %+v, %v, want the answer", got, err)
	}
}

func TestKeepAlive(t *testing.T) {
	r := rigged(t, nil)
	conn := r.dial()
	in := bufio.NewReader(conn)
	for _, request := range []struct {
		bytes string
		want  int
	}{
		{withLength(r.head("POST /rpc HTTP/1.1"), list), 200},
		{withLength(r.head("POST /rpc HTTP/1.1"), `{"jsonrpc":"2.0","method":"list_agents"}`), 204},
		{withLength(r.head("POST /rpc HTTP/1.1"), `{`), 400},
		{withLength(r.head("POST /agent/nobody HTTP/1.1"), list), 404},
		{withLength(r.head("POST /rpc HTTP/1.1"), list), 200},
	} {
		if _, err := io.WriteString(conn, request.bytes); err != nil {
			t.Fatal(err)
		}
		response, body := readResponse(t, in)
		if response.StatusCode != request.want || response.Header.Get("X-Request-Id") == "" {
			t.Errorf("got HTTP %d %s %s, want %d with a request id", response.StatusCode, body, response.Header, request.want)
		}
	}
}

func TestHugeHeader(t *testing.T) {
	r := rigged(t, nil)
	response, body := r.raw(r.head("POST /rpc HTTP/1.1") + "X-Junk: " + strings.Repeat("x", 256<<10) + "\r\n\r\n")
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got HTTP %d, want 431", response.StatusCode)
	}
	wantWhole(t, body, jsonrpc.CodeInvalidRequest)
}

// All items of a batch run at once: each of these waits for all the others.
func TestBatchRunsInParallel(t *testing.T) {
	const n = 8
	var all sync.WaitGroup
	all.Add(n)
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		all.Done()
		met := make(chan struct{})
		go func() { defer close(met); all.Wait() }()
		select {
		case <-met:
			supervisortest.Echo(c, p)
		case <-c.Gone():
		}
	}))
	items := make([]string, n)
	for i := range items {
		id := fmt.Sprintf("a%d", i)
		items[i] = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"create_agent","params":{"agent_id":%q,`+
			`"initial_message":"m%d","wait_for_initial_response":true}}`, i, id, i)
	}
	response, body := r.post("/", "["+strings.Join(items, ",")+"]")
	if response.StatusCode != 200 {
		t.Fatalf("got HTTP %d %s", response.StatusCode, body)
	}
	for i, answer := range gjson.Parse(body).Array() {
		if answer.Get("id").Int() != int64(i) || answer.Get("result.initial_response.content").Str != fmt.Sprintf("m%d", i) {
			t.Errorf("answer %d: %s", i, answer.Raw)
		}
	}
}

// A notification of a send is answered once it is accepted, not when it ends.
func TestSendAsNotification(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	response, body := r.post("/agent/a", `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"}}`)
	if response.StatusCode != 204 || body != "" {
		t.Errorf("got HTTP %d %q, want 204 and nothing", response.StatusCode, body)
	}
	if got, err := client.Do(r.ctx(), r.client, "a", api.Cancel, api.CancelParams{RequestID: "r"}); err != nil || !got.Cancelled {
		t.Errorf("cancel: %+v, %v: the send was not accepted", got, err)
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "[::1]"} {
		if err := httpd.CheckLoopback(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"", "0.0.0.0", "::", "127.0.0.2", "192.168.1.1", "localhost.evil.example", "*"} {
		if err := httpd.CheckLoopback(host); err == nil {
			t.Errorf("%q is accepted", host)
		}
		if ln, err := httpd.Listen(host, 0); err == nil {
			ln.Close()
			t.Errorf("listening on %q", host)
		}
	}
}

func TestDrain(t *testing.T) {
	release := make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			select {
			case <-release:
				supervisortest.Echo(c, p)
			case <-c.Gone():
			}
		})(r, o)
		o.DrainTimeout = patience
	})
	r.create("a")
	running := r.begin("a", "run")
	conn := r.dial() // one that is open before the drain begins

	if _, err := client.Do(r.ctx(), r.client, "", api.ShutdownServer, api.None{}); err != nil {
		t.Fatal(err)
	}
	<-r.server.Draining()
	if _, err := io.WriteString(conn, withLength(r.head("POST /rpc HTTP/1.1"), discover)); err != nil {
		t.Fatal(err)
	}
	response, body := readResponse(t, bufio.NewReader(conn))
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "nothing was accepted") {
		t.Errorf("a request while draining: HTTP %d %s, want 503", response.StatusCode, body)
	}
	wantWhole(t, body, jsonrpc.CodeUnavailable)
	if response, body := r.do("GET", "/healthz", nil); response.StatusCode != 200 || gjson.Get(body, "status").Str != "draining" {
		t.Errorf("health while draining: HTTP %d %s", response.StatusCode, body)
	}
	close(release)
	if s := r.await(running); s.err != nil || *s.result.Content != "go" {
		t.Errorf("the send that ran: %+v, want its answer", s)
	}
	<-r.served
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("the server still listens")
	}
}

// While the server drains, what it waits for can be seen and ended: a call that waited for an
// approval held the server for the whole time of the drain, and its turn was cancelled.
func TestApprovalsAndCancelsWhileDraining(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			if c.Spec().ID == "b" {
				supervisortest.UntilAborted(c, p)
				return
			}
			answer, _ := c.Permission(p, protocol.PermissionRequest{ToolName: "shell", Action: protocol.ActionExecute, Summary: "make"})
			c.Say(string(answer.Decision))
			c.Finish(p, "")
		})(r, o)
		o.DrainTimeout = patience
	})
	r.create("a")
	r.create("b")
	asking := r.begin("a", "asks")
	(&family{rig: r}).until("a", "permission_request")
	long := r.begin("b", "long")
	if _, err := client.Do(r.ctx(), r.client, "", api.ShutdownServer, api.None{}); err != nil {
		t.Fatal(err)
	}
	<-r.server.Draining()
	agents, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
	if err != nil || len(agents.Agents) != 2 || len(agents.Agents[0].Pending) != 1 {
		t.Fatalf("the agents: %+v, %v", agents, err)
	}
	if response, body := r.post("/rpc", "["+list+","+discover+"]"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("with a call of another method: HTTP %d %s", response.StatusCode, body)
	}
	answer := api.RespondPermissionParams{RequestID: agents.Agents[0].Pending[0].RequestID, Decision: protocol.Deny}
	if _, err := client.Do(r.ctx(), r.client, "a", api.RespondPermission, answer); err != nil {
		t.Error(err)
	}
	if s := r.await(asking); s.err != nil || *s.result.Content != "deny" {
		t.Errorf("the turn that asked: %+v", s)
	}
	if done, err := client.Do(r.ctx(), r.client, "b", api.Cancel, api.CancelParams{RequestID: "long"}); err != nil || !done.Cancelled {
		t.Errorf("cancel: %+v, %v", done, err)
	}
	if s := r.await(long); s.err != nil || !s.result.Cancelled {
		t.Errorf("the turn that was cancelled: %+v", s)
	}
	<-r.served
}

// At the end of the drain's time nothing begins any more: what waits has ended before
// what runs, and does not take its place.
func TestNothingBeginsAfterTheDrain(t *testing.T) {
	begun, release := make(chan string, 3), make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) { // its DrainTimeout is 1 ms
		begun <- p.ID
		select {
		case <-release:
			supervisortest.Echo(c, p)
		case <-c.Gone():
		}
	}))
	r.create("a")
	running := r.begin("a", "run")
	waiting := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("wait")})
	r.queued("a", 1)
	r.stop()
	e := wantError(t, r.await(waiting).err, jsonrpc.CodeUnavailable, "SERVER_DRAINING", 503)
	if e.Data.Outcome != "cancelled" {
		t.Errorf("what waited: %+v", e.Data)
	}
	e = wantError(t, r.await(running).err, jsonrpc.CodeUnavailable, "SERVER_DRAINING", 503)
	if e.Data.Outcome != "" || !strings.Contains(e.Data.Details, "was accepted") { // it heeds no cancel
		t.Errorf("what ran: %+v", e.Data)
	}
	<-r.served
	close(release) // the turn ends by itself, before its agent is stopped
	if err := r.sup.WaitIdle(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if len(begun) != 1 {
		t.Errorf("%d turns began, want the one that ran already", len(begun))
	}
}

// What waits when everything is refused has not been cancelled by anybody, and is told
// why it does not run: a send as well as a plan to be made.
func TestRefusedIsDraining(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("a")
	r.begin("a", "run")
	send := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("wait")})
	plan := make(chan error, 1)
	go func() {
		_, err := client.Do(r.ctx(), r.client, "a", api.CreatePlan, api.CreatePlanParams{UserRequest: "x"})
		plan <- err
	}()
	r.queued("a", 2)
	r.sup.StopAccepting()
	wantError(t, r.await(send).err, jsonrpc.CodeUnavailable, "SERVER_DRAINING", 503)
	wantError(t, <-plan, jsonrpc.CodeUnavailable, "SERVER_DRAINING", 503)
}

// What does not end within the drain's time is told why.
func TestDrainTimeout(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted)) // its DrainTimeout is 1 ms
	r.create("a")
	running := r.begin("a", "run")
	r.stop()
	s := r.await(running)
	e := wantError(t, s.err, jsonrpc.CodeUnavailable, "SERVER_DRAINING", 503)
	if e.Data.Outcome != "cancelled" || !strings.Contains(e.Data.Details, "was accepted, and cancelled") {
		t.Errorf("a turn that was cancelled: %+v", e.Data)
	}
}

// A turn that is over when it is cut off is answered as it ended, streamed or not.
func TestDrainTellsHowTurnsEnded(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) { // its DrainTimeout is 1 ms
		<-c.Aborted()
		if p.Message == "whole" {
			c.Say("whole")
			c.Emit(protocol.AgentEnd{StopReason: protocol.StopCompleted, TurnID: p.ID})
			c.Respond(p, map[string]bool{"ok": true})
			return
		}
		c.Finish(p, "")
	}))
	for _, id := range []string{"plain", "streamed", "cut"} {
		r.create(id)
	}
	plain := r.sendAsync("plain", api.SendParams{Content: "whole"})
	streamed := make(chan sent, 1)
	go func() {
		result, err := r.sendStream(r.ctx(), "streamed", api.SendParams{Content: "whole"}, func(string) {}, nil)
		streamed <- sent{result: result, err: err}
	}()
	cut := make(chan sent, 1)
	go func() {
		result, err := r.sendStream(r.ctx(), "cut", api.SendParams{Content: "x"}, func(string) {}, nil)
		cut <- sent{result: result, err: err}
	}()
	for busy := 0; busy < 3; busy = r.sup.Stats().Agents[supervisor.Busy] {
		runtime.Gosched()
	}
	r.stop()
	for _, s := range []<-chan sent{plain, streamed} {
		if got := r.await(s); got.err != nil || *got.result.Content != "whole" {
			t.Errorf("a turn that was whole: %+v", got)
		}
	}
	e := rpcError(t, r.await(cut).err)
	if e.Data.Type != "SERVER_DRAINING" || e.Data.Outcome != "cancelled" {
		t.Errorf("a stream that was cut off: %+v", e.Data)
	}
}
