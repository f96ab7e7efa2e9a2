package bridge_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/logfile"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// Any machine answers for an agent as the one does that has it: by a result, an error, a batch, to a notification, and as it goes.
func TestForward(t *testing.T) {
	c, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"send","params":{"content":"héllo","request_id":"r1"},"id":"é"}`,
		`{"jsonrpc":"2.0","method":"get_context","id":2}`,
		`{"jsonrpc":"2.0","method":"get_messages","params":{},"id":null}`,
		`{"jsonrpc":"2.0","method":"set_model","params":{"model":"none"},"id":3}`,
		`{"jsonrpc":"2.0","method":"set_model","params":{"modell":"none"},"id":3}`,
		`{"jsonrpc":"2.0","method":"send","params":{"content":"other","request_id":"r1"},"id":3}`,
		`{"jsonrpc":"2.0","method":"no_such","id":4}`,
		`{"jsonrpc":"2.0","method":"list_agents","id":4}`,
		`[{"jsonrpc":"2.0","method":"get_model","id":5},{"jsonrpc":"2.0","method":"get_limits","id":6},{"jsonrpc":"2.0","method":"get_model"}]`,
	} {
		if strings.Contains(body, "héllo") { // so that both are answered the same
			b.post("/agent/x", body)
		}
		want, wantBody := b.post("/agent/x", body)
		got, gotBody := a.post("/agent/x", body)
		if got.StatusCode != want.StatusCode || gotBody != wantBody || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("%s\nthrough a: %d %s\nof b:      %d %s", body, got.StatusCode, gotBody, want.StatusCode, wantBody)
		}
	}
	if answer, body := a.post("/agent/x", `{"jsonrpc":"2.0","method":"send","params":{"content":"quiet","request_id":"r2"}}`); answer.StatusCode != http.StatusNoContent || body != "" {
		t.Errorf("a notification: %d %s", answer.StatusCode, body)
	}
	if sent, err := client.Do(b.ctx(), b.client, "x", api.Send, api.SendParams{Content: "quiet", RequestID: new("r2")}); err != nil || protocol.Value(sent.Content) != "quiet" {
		t.Errorf("what it began: %+v, %v", sent, err)
	}
	text, result := rest(t, a.stream("x", `{"jsonrpc":"2.0","method":"send","params":{"content":"one two three"},"id":1}`))
	if text != "one two three" || result.Get("content").Str != text {
		t.Errorf("a stream: %q, %s", text, result)
	}
	b.save("home/sessions/saved.jsonl", []byte(savedText), 1)
	c.mu.Lock()
	c.claims["saved"] = "b"
	c.mu.Unlock()
	if answer, body := a.post("/agent/saved", `{"jsonrpc":"2.0","method":"get_model","id":1}`, "X-Nexus-Restore", "false"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("a saved agent that is not to be started: %d %s", answer.StatusCode, body)
	}
	if answer, body := a.post("/agent/saved", `{"jsonrpc":"2.0","method":"get_model","id":1}`); answer.StatusCode != http.StatusOK {
		t.Errorf("a saved agent: %d %s", answer.StatusCode, body)
	}
	if answer, body := a.post("/agent/nobody", `{"jsonrpc":"2.0","method":"get_model","id":1}`); answer.StatusCode != http.StatusNotFound {
		t.Errorf("of no machine: %d %s", answer.StatusCode, body)
	}
}

// A call is audited and logged at both machines, with one request id and for the key that asks the first.
func TestForwardedPrincipal(t *testing.T) {
	_, all := clusterOf(t, func(r *rig, o *bridge.Options) {
		audit, err := logfile.OpenTiers(filepath.Join(r.home, "audit.log"), logfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { audit.Close() })
		o.Audit = audit
	}, "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	made, err := client.Do(a.ctx(), a.client, "", api.CreateKey, api.CreateKeyParams{Scope: "agent", AgentID: new("x"), Name: new("Jörg")})
	if err != nil {
		t.Fatal(err)
	}
	call := func(key, body string) (int, string) {
		answer, got := a.post("/agent/x", body, "Authorization", "Bearer "+key, "X-Request-Id", "one-id")
		return answer.StatusCode, got
	}
	if status, body := call(made.Key, `{"jsonrpc":"2.0","method":"set_cwd","params":{"cwd":"/new"},"id":1}`); status != 200 || !strings.Contains(body, `"result"`) {
		t.Errorf("a key of the agent: %d %s", status, body)
	}
	if _, body := call(made.Key, `{"jsonrpc":"2.0","method":"respond_permission","params":{"request_id":"p7","decision":"allow_once"},"id":1}`); !strings.Contains(body, "may_grant") {
		t.Errorf("a key that grants nothing: %s", body)
	}
	by := `"request_id":"one-id","key":"` + made.KeyID + `","key_name":"Jörg"`
	inLog(t, a, by)
	inLog(t, b, by+`,"machine":"a"`)
	for _, r := range all {
		audited := ""
		files, err := filepath.Glob(filepath.Join(r.home, "audit*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			audited += string(text)
		}
		if n := strings.Count(audited, `"method":"set_cwd"`); n != 2 || strings.Count(audited, `"request_id":"one-id","by":{"key":"`+made.KeyID) < n {
			t.Errorf("audited %d times: %s", n, audited)
		}
	}
	reading, err := client.Do(a.ctx(), a.client, "", api.CreateKey, api.CreateKeyParams{Scope: "read"})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := call(reading.Key, `{"jsonrpc":"2.0","method":"get_model","id":1}`); status != 200 || !strings.Contains(body, "echo") {
		t.Errorf("a reading key: %d %s", status, body)
	}
	if _, body := call(reading.Key, `{"jsonrpc":"2.0","method":"shutdown","id":1}`); !strings.Contains(body, "NOT_PERMITTED") {
		t.Errorf("a reading key changes something: %s", body)
	}
	if _, err := client.Do(a.ctx(), a.client, "x", api.Shutdown, api.None{}); err != nil {
		t.Fatal(err)
	}
	if _, body := call(reading.Key, `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "it would be started") {
		t.Errorf("a reading key starts an agent elsewhere: %s", body)
	}
}

// inLog waits until the log has a text.
func inLog(t *testing.T, r *rig, text string) {
	t.Helper()
	seen := r.logs.seen(text)
	if strings.Contains(r.logs.String(), text) {
		return
	}
	select {
	case <-seen:
	case <-time.After(patience):
		t.Errorf("never logged: %s", text)
	}
}

// The events of an agent are streamed by any machine, from where a client says. A key's end ends the stream.
func TestForwardedEvents(t *testing.T) {
	_, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	if _, err := client.Do(a.ctx(), a.client, "x", api.Send, api.SendParams{Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	through, of := take(t, a, "x", 0, "turn_end"), take(t, b, "x", 0, "turn_end")
	if len(through) != len(of) {
		t.Fatalf("%d events through a, %d of b", len(through), len(of))
	}
	for i := range of {
		if string(through[i].Data) != string(of[i].Data) || through[i].Seq != of[i].Seq {
			t.Errorf("event %d through a is %s, of b %s", i, through[i].Data, of[i].Data)
		}
	}
	made, err := client.Do(a.ctx(), a.client, "", api.CreateKey, api.CreateKeyParams{Scope: "agent", AgentID: new("x")})
	if err != nil {
		t.Fatal(err)
	}
	conn := a.dial()
	if _, err := io.WriteString(conn, strings.Replace(a.head("GET /agent/x/events?after=0 HTTP/1.1"), a.key.Reveal(), made.Key, 1)+"\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	if first := data(t, lines); first.Get("type").Str != "agent_state" {
		t.Errorf("the first event is %s", first)
	}
	if _, err := client.Do(a.ctx(), a.client, "", api.RevokeKey, api.RevokeKeyParams{KeyID: made.KeyID}); err != nil {
		t.Fatal(err)
	}
	for last := data(t, lines); last.Get("type").Str != "end" || last.Get("reason").Str != "revoked"; last = data(t, lines) {
	}
	if answer, body := a.do(http.MethodGet, "/agent/x/events?after=-1", nil); answer.StatusCode != http.StatusBadRequest || gjson.Get(body, "error.data.type").Str != "INVALID_PARAMS" {
		t.Errorf("a bad position: %d %s", answer.StatusCode, body)
	}
	ended := make(chan error, 1)
	go func() {
		var reason string
		for event, err := range a.client.Events(a.ctx(), "x", client.FromNow, client.Filter{}) {
			if err != nil {
				ended <- err
				return
			}
			reason = string(event.Data)
			if event.Type == "agent_state" { // it is followed
				continue
			}
		}
		if !strings.Contains(reason, "removed") {
			ended <- errors.New(reason)
			return
		}
		ended <- nil
	}()
	followed(t, b, 1)
	if _, err := client.Do(b.ctx(), b.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream of an agent that was destroyed: %v", err)
	}
}

// followed waits until streams of events are open, as the metrics say.
func followed(t *testing.T, r *rig, n int) {
	t.Helper()
	want := "nexus_http_requests_running{route=\"events\"} " + string(rune('0'+n))
	for began := time.Now(); ; {
		if _, body := r.do(http.MethodGet, "/metrics", nil); strings.Contains(body, want) {
			return
		} else if time.Since(began) > patience {
			t.Fatalf("never %s in\n%s", want, body)
		}
	}
}

// A client that leaves is one that leaves the agent's machine.
func TestForwardedClientLeaves(t *testing.T) {
	begun := make(chan string, 1)
	_, all := clusterOf(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		begun <- p.ID
		supervisortest.UntilAborted(c, p)
	}), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	conn := a.dial()
	if _, err := io.WriteString(conn, withLength(a.head("POST /agent/x HTTP/1.1"), `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r","on_disconnect":"cancel"},"id":1}`)); err != nil {
		t.Fatal(err)
	}
	<-begun
	conn.Close()
	got, err := client.Do(b.ctx(), b.client, "x", api.Send, api.SendParams{Content: "x", RequestID: new("r")})
	if err != nil || !got.Cancelled {
		t.Errorf("the turn: %+v, %v", got, err)
	}
	// And a cancel that is asked for elsewhere.
	sent := make(chan api.SendResult, 1)
	go func() {
		got, _ := client.Do(a.ctx(), a.client, "x", api.Send, api.SendParams{Content: "y", RequestID: new("s")})
		sent <- got
	}()
	<-begun
	cancelled, err := client.Do(a.ctx(), a.client, "x", api.Cancel, api.CancelParams{RequestID: "s"})
	if got := <-sent; err != nil || !cancelled.Cancelled || !got.Cancelled {
		t.Errorf("cancelled: %+v, %v; the send: %+v", cancelled, err, got)
	}
}

// A machine that is not reached is an error of its own, and what it does goes on: in a turn, in a stream, and before anything was asked.
func TestUnreachable(t *testing.T) {
	begun, release := make(chan string, 2), make(chan struct{})
	c, all := clusterOf(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say("some")
		begun <- p.ID
		select {
		case <-release:
			c.Finish(p, " more")
		case <-c.Gone():
		}
	}), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	events := make(chan error, 1)
	go func() {
		for _, err := range a.client.Events(a.ctx(), "x", client.FromNow, client.Filter{}) {
			if err != nil {
				events <- err
				return
			}
		}
		events <- nil
	}()
	followed(t, b, 1)
	stream := a.stream("x", `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"},"id":1}`)
	<-begun
	for data(t, stream).Get("params.chunk").Str != "some" {
	}
	joined := make(chan string, 1)
	go func() {
		_, body := a.post("/agent/x", `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"},"id":1}`)
		joined <- body
	}()
	b.underWay("agent", 2)
	c.cut("b")
	const unreachable = "NODE_UNREACHABLE"
	if last := data(t, stream); last.Get("error.data.type").Str != unreachable || !strings.Contains(last.Get("error.data.details").Str, "is not known") ||
		last.Get("error.data.recovery_suggestions.0").Str != "Once the machine is back, or another one has the agent, the same send with request_id r tells how it ended." {
		t.Errorf("a stream ends with %s", last)
	}
	if body := <-joined; gjson.Get(body, "error.data.type").Str != unreachable || !strings.Contains(body, `"code":-32001`) {
		t.Errorf("a turn is answered by %s", body)
	}
	if err := <-events; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the events end with %v", err)
	}
	answer, body := a.post("/agent/x", `{"jsonrpc":"2.0","method":"get_model","id":1}`)
	if answer.StatusCode != http.StatusServiceUnavailable || gjson.Get(body, "error.data.type").Str != unreachable || !strings.Contains(body, "nothing was accepted") {
		t.Errorf("what is asked then: %d %s", answer.StatusCode, body)
	}
	if want := "Send it again once the machine is back, or another one has the agent."; gjson.Get(body, "error.data.recovery_suggestions.0").Str != want {
		t.Errorf("what is asked then: %s, want %s", body, want)
	}
	answer, body = a.do(http.MethodGet, "/agent/x/events", nil)
	if answer.StatusCode != http.StatusServiceUnavailable || gjson.Get(body, "error.data.type").Str != unreachable {
		t.Errorf("events that are asked for then: %d %s", answer.StatusCode, body)
	}
	answer, body = a.post("/rpc", `{"jsonrpc":"2.0","method":"delete_session","params":{"session_name":"x"},"id":1}`)
	if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "the machine b, which has the session, is not reached, and nothing was accepted") {
		t.Errorf("a session of it: %d %s", answer.StatusCode, body)
	}
	a.create("y")
	c.mend("b")
	close(release)
	got, err := client.Do(a.ctx(), a.client, "x", api.Send, api.SendParams{Content: "x", RequestID: new("r")})
	if err != nil || protocol.Value(got.Content) != "some" {
		t.Errorf("the turn went on to %+v, %q, %v", got, protocol.Value(got.Content), err)
	}
}

// underWay waits until requests of a route run, as the metrics say.
func (r *rig) underWay(route string, n int) {
	r.t.Helper()
	want := "nexus_http_requests_running{route=\"" + route + "\"} " + string(rune('0'+n))
	for began := time.Now(); ; {
		if _, body := r.do(http.MethodGet, "/metrics", nil); strings.Contains(body, want) {
			return
		} else if time.Since(began) > patience {
			r.t.Fatalf("never %s in\n%s", want, body)
		}
	}
}

// Of a name one machine has the agent, while anything of it is there, also where that is not known yet.
func TestClaims(t *testing.T) {
	c, all := clusterOf(t, nil, "a", "b")
	c.mu.Lock()
	c.hidden = true
	c.mu.Unlock()
	a, b := all[0], all[1]
	owned := func(name, want string) {
		t.Helper()
		if got := c.owner(name); got != want {
			t.Errorf("%s is of %q, want %q", name, got, want)
		}
	}
	do := func(r *rig, method, params, want string) {
		t.Helper()
		_, body := r.post("/rpc", `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`,"id":1}`)
		if !strings.Contains(body, want) {
			t.Errorf("%s %s: %s, want %s", method, params, body, want)
		}
	}
	b.create("x")
	owned("x", "b")
	a.save("home/sessions/x.jsonl", []byte(savedText), 1) // of the time before
	do(a, "create_agent", `{"agent_id":"x","if_exists":"use"}`, `"existing":true`)
	if _, err := a.sup.Agent("x"); err == nil {
		t.Error("two machines have x")
	}
	do(b, "create_agent", `{"agent_id":".t"}`, `"result"`)
	owned(".t", "b")
	do(b, "destroy_agent", `{"agent_id":".t"}`, `"success":true`)
	owned(".t", "")
	a.save("home/sessions/y.jsonl", []byte(savedText), 1)
	do(a, "clone_session", `{"src_session":"y","dest_session":"x2"}`, `"cloned":true`)
	owned("x2", "a")
	do(b, "create_agent", `{"agent_id":"x2"}`, `"restored":true`)
	do(a, "destroy_agent", `{"agent_id":"x2"}`, `"success":true`)
	owned("x2", "a")
	do(a, "rename_session", `{"old_name":"x2","new_name":"x3"}`, `"renamed":true`)
	owned("x2", "")
	owned("x3", "a")
	b.save("home/sessions/z.jsonl", []byte(savedText), 1)
	do(b, "rename_session", `{"old_name":"z","new_name":"x3"}`, "SESSION_EXISTS")
	do(b, "clone_session", `{"src_session":"z","dest_session":"x3"}`, "SESSION_EXISTS")
	do(b, "fork", `{"agent_id":"z","new_agent_id":"x3"}`, "SESSION_EXISTS")
	do(a, "delete_session", `{"session_name":"x3"}`, `"deleted":true`)
	owned("x3", "")
	do(b, "fork", `{"agent_id":"z","new_agent_id":"x3"}`, `"agent_id":"x3"`)
	owned("x3", "b")
	c.mu.Lock()
	c.split = true
	c.mu.Unlock()
	do(a, "create_agent", `{"agent_id":"w"}`, "NO_QUORUM")
	ask := func(want string) {
		t.Helper()
		if answer, body := a.post("/agent/w", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, want) {
			t.Errorf("an agent of which a machine does not know whose it is: %d %s, want %s", answer.StatusCode, body, want)
		}
		if answer, body := a.do(http.MethodGet, "/agent/w/events", nil); !strings.Contains(body, want) {
			t.Errorf("its events: %d %s, want %s", answer.StatusCode, body, want)
		}
	}
	ask("AGENT_NOT_FOUND")
	c.mu.Lock()
	c.blind = true
	c.mu.Unlock()
	ask("NO_QUORUM")
}

// A machine that is cut off answers what only reads, and says since when it may be old; what changes something it refuses before anything is done, but
// for what ends work of its own.
func TestCutOff(t *testing.T) {
	c, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a, b := all[0], all[1]
	a.create("x")
	b.create("y")
	const since = "2001-09-09T01:46:40Z"
	do := func(path, body, stale, want string) {
		t.Helper()
		answer, got := a.post(path, body)
		if answer.Header.Get("X-Nexus-Stale") != stale || !strings.Contains(got, want) {
			t.Errorf("%s %s: %s, stale since %q; want %s, %q", path, body, got, answer.Header.Get("X-Nexus-Stale"), want, stale)
		}
	}
	reads := `{"jsonrpc":"2.0","id":1,"method":"get_model"}`
	do("/agent/x", reads, "", "echo")
	do("/agent/x", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hello","request_id":"before"}}`, "", "result")
	c.mu.Lock()
	c.blind = true
	c.mu.Unlock()
	do("/agent/x", reads, "never", "echo")
	c.mu.Lock()
	c.since = time.Unix(1_000_000_000, 0)
	c.mu.Unlock()
	do("/agent/x", reads, since, "echo")
	do("/agent/y", reads, since, "echo") // b is cut off, too, and says so
	do("/rpc", "["+reads+`,{"jsonrpc":"2.0","id":2,"method":"list_agents"}]`, since, `"agent_id":"x"`)
	for _, m := range api.Methods {
		path := "/rpc"
		if m.Scope == api.Agent {
			path = "/agent/x"
		}
		if m.Effect == api.Reads || m.Alone {
			continue
		}
		do(path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, m.Name), since, "NO_QUORUM")
	}
	do("/agent/x", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hello","request_id":"cut"}}`, since, "NO_QUORUM")
	do("/agent/x", `{"jsonrpc":"2.0","id":1,"method":"cancel","params":{"request_id":"cut"}}`, since, `"result"`)
	do("/agent/saved", reads, since, "NO_QUORUM")
	if answer, _ := a.do(http.MethodGet, "/agent/x/events?after=99", nil); answer.Header.Get("X-Nexus-Stale") != since {
		t.Errorf("a stream of events says nothing: %v", answer.Header)
	}
	if _, err := a.sup.Agent("x"); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	c.blind = false
	c.mu.Unlock()
	do("/agent/x", reads, "", "echo")
	do("/agent/x", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hello","request_id":"cut"}}`, "", `"stop_reason":"completed"`)
	do("/agent/x", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`, "", `"success":true`)
}

// A server claims what is saved in its home, and gives up what is gone. What another machine has goes there.
func TestClaimSaved(t *testing.T) {
	c := newCluster("a", "b")
	c.claims["gone"], c.claims["theirs"], c.claims["far"], c.split = "a", "b", "b", true
	a := c.join(t, "a", func(r *rig, o *bridge.Options) {
		r.save("home/sessions/saved.jsonl", []byte(savedText), 1)
		r.save("home/sessions/theirs.jsonl", []byte(savedText), 2)
	})
	seen := a.logs.seen("another machine has a session of that name")
	c.mu.Lock()
	c.split = false
	c.mu.Unlock()
	<-seen
	for began := time.Now(); c.owner("gone") != ""; {
		if time.Since(began) > patience {
			t.Fatal("what is gone stays claimed")
		}
	}
	if c.owner("saved") != "a" || c.owner("theirs") != "b" || c.owner("far") != "b" {
		t.Errorf("claimed are %v", c.claims)
	}
	// b gives up what it does not have, and a goes on with its own.
	b := c.join(t, "b", nil)
	for began := time.Now(); c.owner("theirs") == "b"; {
		if time.Since(began) > patience {
			t.Fatal("b keeps what it does not have")
		}
	}
	if _, body := b.post("/agent/saved", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "echo") {
		t.Errorf("a saved agent elsewhere: %s", body)
	}
	if _, body := a.post("/agent/theirs", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "echo") || c.owner("theirs") != "a" {
		t.Errorf("what b has given up: %s", body)
	}
}

// The agents of a machine that is gone go on at another one. When it is back, what still runs there ends, and its
// callers are sent to the other machine.
func TestTakeOver(t *testing.T) {
	c, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	b.create("y")
	a.save("home/sessions/x.jsonl", []byte(savedText), 1) // as it was shipped
	taken := b.logs.seen("another machine has taken an agent, which ends here")
	c.mu.Lock()
	c.blind = true
	c.mu.Unlock()
	if answer, body := b.do(http.MethodGet, "/agent/x/events?after=99", nil); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "NO_QUORUM") {
		t.Errorf("events behind the last one that a machine knows which is cut off: %d %s", answer.StatusCode, body)
	}
	c.mu.Lock()
	c.blind = false
	c.mu.Unlock()
	events := make(chan string, 1)
	go func() { // which is waited for
		_, body := b.do(http.MethodGet, "/agent/x/events?after=0", nil)
		events <- body
	}()
	c.mu.Lock()
	c.moves = true
	c.mu.Unlock()
	c.cut("b")
	for began := time.Now(); c.owner("x") != "a" || c.owner("y") != "a"; {
		if time.Since(began) > patience {
			t.Fatalf("claimed are %v", c.claims)
		}
	}
	if _, body := a.post("/agent/x", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "echo") {
		t.Errorf("an agent that was taken over: %s", body)
	}
	<-taken
	if told := <-events; !strings.Contains(told, `"state":"ready"`) || strings.Contains(told, "event: end") {
		t.Errorf("the events of an agent that another machine has taken: %s", told)
	}
	c.mend("b")
	for began := time.Now(); ; {
		_, errX := b.sup.Agent("x")
		_, errY := b.sup.Agent("y")
		if errX != nil && errY != nil {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("the machine that is back goes on with its agents")
		}
	}
	if _, body := b.post("/agent/x", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "echo") {
		t.Errorf("through the machine that is back: %s", body)
	}
}

// All agents of a machine that is gone are claimed before the files of any are fetched, so one that is asked for does not wait for the others.
func TestTakeOverClaimsFirst(t *testing.T) {
	c, all := clusterOf(t, plays(supervisortest.Echo), "a", "b")
	a := all[0]
	a.save("home/sessions/asked.jsonl", []byte(savedText), 1)
	c.mu.Lock()
	c.slow, c.moves = make(chan struct{}), true
	c.claims["asked"] = "b"
	for i := range 20 {
		c.claims[fmt.Sprint("other-", i)] = "b"
	}
	c.mu.Unlock()
	defer close(c.slow)
	c.cut("b")
	for began := time.Now(); len((&machine{c, "b"}).Owned()) > 0; {
		if time.Since(began) > patience {
			t.Fatalf("claimed are %v while the files of some are fetched", c.claims)
		}
	}
	if _, body := a.post("/agent/asked", `{"jsonrpc":"2.0","method":"get_model","id":1}`); !strings.Contains(body, "echo") {
		t.Errorf("an agent whose files are here: %s", body)
	}
}

// A call that was passed on is not passed on again, whatever the machines know. The one that was asked gives up if each says that the other has the agent.
func TestForwardedOnce(t *testing.T) {
	c, all := clusterOf(t, nil, "a", "b")
	c.mu.Lock()
	c.asked = func(machine string) string { return map[string]string{"a": "b", "b": "a"}[machine] }
	c.mu.Unlock()
	if answer, body := all[0].post("/agent/x", `{"jsonrpc":"2.0","method":"get_model","id":1}`); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, " has x by now") {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	if answer, body := all[0].do(http.MethodGet, "/agent/x/events", nil); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}
