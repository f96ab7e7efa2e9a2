package bridge_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

func grant(scope auth.Scope, agent string) auth.Grant {
	return auth.Grant{Scope: scope, AgentID: agent}
}

// key makes a scoped key and returns it as a header.
func (r *rig) scoped(scope auth.Scope, agent string) (bearer, id string) {
	r.t.Helper()
	key, made, err := r.keys.Add(grant(scope, agent))
	if err != nil {
		r.t.Fatal(err)
	}
	return "Bearer " + key.Reveal(), made.ID
}

// A key for reading is good for no method that changes something, by itself, in a
// batch, as a stream or as a notification.
func TestAttackChangeWithReadOnlyKey(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	bearer, _ := r.scoped(auth.ScopeRead, "")
	for _, m := range api.Methods {
		path := "/rpc"
		if m.Scope == api.Agent {
			path = "/agent/a"
		}
		for _, body := range []string{callBody(m.Name), "[" + callBody(m.Name) + "]"} {
			_, answer := r.post(path, body, "Authorization", bearer, "Accept", "application/json, text/event-stream")
			denied := strings.Contains(answer, `"type":"NOT_PERMITTED"`) && strings.Contains(answer, "-32003")
			if denied != (m.Effect == api.Changes) {
				t.Errorf("%s: %s", m.Name, answer)
			}
		}
		if m.Effect == api.Changes {
			r.post(path, `{"jsonrpc":"2.0","method":"`+m.Name+`","params":{}}`, "Authorization", bearer)
		}
	}
	if agents := r.sup.Agents(); len(agents) != 1 || agents[0].ShouldShutdown {
		t.Errorf("something was changed: %+v", agents)
	}
	r.works()
}

// A key for reading starts no process: no compiler, and no agent that is saved or was
// shut down, neither to be asked nor to be followed.
func TestAttackStartWithReadOnlyKey(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) {
		o.Runtime = withCheck{o.Runtime, func(context.Context, api.ValidateCodeParams) (api.ValidateCodeResult, error) {
			t.Error("a checker was started")
			return api.ValidateCodeResult{}, nil
		}}
	})
	bearer, _ := r.scoped(auth.ScopeRead, "")
	r.save("home/sessions/saved.jsonl", []byte(savedText), 1)
	r.create("stopped")
	if _, body := r.post("/agent/stopped", callBody("shutdown")); !gjson.Get(body, "result.success").Bool() {
		t.Fatal(body)
	}
	for _, path := range []string{"/agent/saved", "/agent/stopped"} {
		for _, method := range []string{"get_model", "get_messages", "get_permissions", "list_tools"} {
			if _, body := r.post(path, callBody(method), "Authorization", bearer); gjson.Get(body, "error.data.type").Str != "NOT_PERMITTED" {
				t.Errorf("%s of %s: %s", method, path, body)
			}
		}
	}
	if response, body := r.do("GET", "/agent/saved/events", nil, "Authorization", bearer); response.StatusCode != 403 || !strings.Contains(body, "would be started") {
		t.Errorf("events: HTTP %d %s", response.StatusCode, body)
	}
	if response, _ := r.do("GET", "/agent/nobody/events", nil, "Authorization", bearer); response.StatusCode != 404 {
		t.Errorf("events of nobody: HTTP %d", response.StatusCode)
	}
	r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"validate_code","params":{"code":"x","language":"go"}}`, "Authorization", bearer)
	if agents := r.sup.Agents(); len(agents) != 1 || agents[0].State != supervisor.Stopped {
		t.Errorf("something was started: %+v", agents)
	}
	// Whose process is there already, or is not needed, is told of.
	r.create("a")
	if _, body := r.post("/agent/a", callBody("get_model"), "Authorization", bearer); !gjson.Get(body, "result").Exists() {
		t.Errorf("of one that runs: %s", body)
	}
	for _, id := range []string{"a", "stopped"} {
		conn := r.dial()
		if _, err := io.WriteString(conn, "GET /agent/"+id+"/events HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: "+bearer+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("events of %s: %+v, %v", id, response, err)
		}
		conn.Close() // closing the body would wait for the end of the stream
	}
}

// A key for one agent opens nothing but that agent's path and events, and does not
// tell what else there is.
func TestAttackElsewhereWithAgentKey(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	r.create("b")
	bearer, _ := r.scoped(auth.ScopeAgent, "a")
	for _, route := range []string{
		"POST /", "POST /rpc", "POST /agent/b", "POST /agent/nobody", "GET /agent/b/events", "GET /agent/nobody/events", "GET /readyz", "GET /nowhere",
		"GET /events", "GET /events?agents=b", "GET /events?agents=a,b", "GET /events?after=0", "GET /metrics",
	} {
		method, path, _ := strings.Cut(route, " ")
		var sent io.Reader
		if method == "POST" {
			sent = strings.NewReader(callBody("get_model"))
		}
		response, body := r.do(method, path, sent, "Authorization", bearer)
		if response.StatusCode != 403 || gjson.Get(body, "error.data.type").Str != "NOT_PERMITTED" {
			t.Errorf("%s: HTTP %d %s", route, response.StatusCode, body)
		}
		wantWhole(t, body, jsonrpc.CodeNotAuthenticated)
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"update_context","params":{"agent_id":"b","action":"add","context_type":"note","data":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"agent_id":"b","task_type":"code_generation","prompt":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"create_plan","params":{"agent_id":"b","user_request":"x"}}`,
		callBody("create_key"), callBody("destroy_agent"), callBody("list_agents"),
	} {
		if _, answer := r.post("/agent/a", body, "Authorization", bearer); gjson.Get(answer, "result").Exists() {
			t.Errorf("%s: %s", body, answer)
		}
	}
	if response, body := r.post("/agent/a", callBody("get_model"), "Authorization", bearer); response.StatusCode != 200 || !gjson.Get(body, "result").Exists() {
		t.Errorf("its own agent: HTTP %d %s", response.StatusCode, body)
	}
}

// With a key for one agent its life can be followed from outside: before there is
// such an agent, over its end, and into its next life.
func TestAgentKeyFollowsLives(t *testing.T) {
	r := rigged(t, nil)
	key, _, err := r.keys.Add(grant(auth.ScopeAgent, "a"))
	if err != nil {
		t.Fatal(err)
	}
	full := r.key
	r.key = key
	next, leave := r.listen("?agents=a", "")
	r.key = full
	defer leave()
	if e := next(); e.name != "open" || !strings.HasPrefix(e.id, "*:") || strings.Contains(e.id, ",") {
		t.Fatalf("the first event is %+v", e)
	}
	r.create("b")
	for range 2 {
		r.create("a")
		r.say("a", "one")
		for _, e := range until(next, "turn_end", 1) {
			if e.agent != "a" {
				t.Errorf("it is told of another agent: %+v", e)
			}
		}
		if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "a"}); err != nil {
			t.Fatal(err)
		}
		until(next, "agent_removed", 1)
	}
}

// Each answer to a good key says what it is good for, also where it is not good for
// the path; nobody else is told anything.
func TestKeyScopeIsTold(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	read, _ := r.scoped(auth.ScopeRead, "")
	agent, _ := r.scoped(auth.ScopeAgent, "a")
	for _, test := range []struct{ line, bearer, want string }{
		{"POST /rpc", "Bearer " + r.key.Reveal(), "full"},
		{"POST /rpc", read, "read"},
		{"GET /nowhere", read, "read"},
		{"POST /agent/a", agent, "agent a"},
		{"POST /rpc", agent, "agent a"},
		{"POST /rpc", "Bearer nxk_" + strings.Repeat("A", 43), ""},
		{"POST /rpc", "", ""},
		// What needs no key looks at none, nor does what is refused before.
		{"GET /healthz", "Bearer " + r.key.Reveal(), ""},
		{"GET /docs", "Bearer " + r.key.Reveal(), ""},
		{"GET /", "Bearer " + r.key.Reveal(), ""},
		{"GET /rpc", "Bearer " + r.key.Reveal(), ""},
	} {
		method, path, _ := strings.Cut(test.line, " ")
		response, _ := r.do(method, path, nil, "Authorization", test.bearer)
		if got := response.Header.Get("X-Key-Scope"); got != test.want {
			t.Errorf("%s: %q, want %q", test.line, got, test.want)
		}
	}
}

// events opens the events of agent a with a key.
func (r *rig) events(bearer string) (*http.Response, *bufio.Reader) {
	r.t.Helper()
	conn := r.dial()
	if _, err := io.WriteString(conn, "GET /agent/a/events HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: "+bearer+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { response.Body.Close() })
	return response, bufio.NewReader(response.Body)
}

// wantRevoked checks that a stream ends because its key did.
func wantRevoked(t *testing.T, in io.Reader) {
	t.Helper()
	all, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(all), `{"type":"end","reason":"revoked"}`) {
		t.Errorf("the stream ended with %q, %v, want reason revoked", all, err)
	}
}

// A key that was revoked, has run out or was replaced opens nothing, and what it
// had opened is closed.
func TestAttackWithEndedKeys(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	opened := func(bearer string) *bufio.Reader {
		t.Helper()
		response, in := r.events(bearer)
		if line, err := in.ReadString('\n'); response.StatusCode != 200 || err != nil || line != ": open\n" {
			t.Fatalf("HTTP %d %q %v", response.StatusCode, line, err)
		}
		return in
	}
	refused := func(bearer string) {
		t.Helper()
		if response, body := r.post("/agent/a", callBody("get_model"), "Authorization", bearer); response.StatusCode != 403 {
			t.Errorf("HTTP %d %s, want 403", response.StatusCode, body)
		}
	}
	revoked, id := r.scoped(auth.ScopeAgent, "a")
	in := opened(revoked)
	if _, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"revoke_key","params":{"key_id":"`+id+`"}}`); !gjson.Get(body, "result.revoked").Bool() {
		t.Fatal(body)
	}
	wantRevoked(t, in)
	refused(revoked)

	key, _, err := r.keys.Add(auth.Grant{Scope: auth.ScopeRead, Expires: time.Now().Add(3 * time.Second)}) // it is opened before, on a busy machine
	if err != nil {
		t.Fatal(err)
	}
	expires := "Bearer " + key.Reveal()
	wantRevoked(t, opened(expires))
	refused(expires)

	old := "Bearer " + r.key.Reveal()
	in = opened(old)
	if _, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"rotate_key","params":{"grace_s":3600}}`); !gjson.Get(body, "result.rotated").Bool() {
		t.Fatal(body)
	}
	r.works() // within the grace, with the old one
	now, err := auth.Read(r.keys.Path())
	if err != nil || now.Matches(r.key.Reveal()) {
		t.Fatalf("the file has no new key: %v", err)
	}
	if _, body := r.post("/rpc", callBody("rotate_key"), "Authorization", "Bearer "+now.Reveal()); !gjson.Get(body, "result.rotated").Bool() {
		t.Fatal(body)
	}
	wantRevoked(t, in)
	refused(old)
	refused("Bearer " + now.Reveal())
	if now, err = auth.Read(r.keys.Path()); err != nil {
		t.Fatal(err)
	}
	if response, _ := r.post("/rpc", list, "Authorization", "Bearer "+now.Reveal()); response.StatusCode != 200 {
		t.Errorf("the newest key: HTTP %d", response.StatusCode)
	}
}

// What a key asks for in vain, at a path that is not its own, counts as well.
func TestAttackElsewhereWithoutEnd(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.RequestsPerMinute = 3 })
	r.create("a")
	bearer, _ := r.scoped(auth.ScopeAgent, "a")
	for i, want := range []int{403, 403, 403, 429, 429} {
		response, body := r.post("/rpc", list, "Authorization", bearer)
		if response.StatusCode != want || (want == 429) != (response.Header.Get("Retry-After") != "") {
			t.Errorf("request %d: HTTP %d %s", i, response.StatusCode, body)
		}
	}
	if response, body := r.post("/agent/a", list, "Authorization", bearer); response.StatusCode != 429 {
		t.Errorf("at its own path: HTTP %d %s", response.StatusCode, body)
	}
	r.works()
}

// A key that ends while a body is held back opens nothing with it: neither a fresh key
// in the place of the one that was replaced, nor a turn after a revocation.
func TestAttackBodyHeldBackOverTheEndOfItsKey(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	agents, id := r.scoped(auth.ScopeAgent, "a")
	hold := func(path, bearer, body string) (finish func() (*http.Response, string)) {
		conn := r.dial()
		head := "POST " + path + " HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: " + bearer + "\r\nExpect: 100-continue\r\n"
		request := withLength(head, body)
		in := bufio.NewReader(conn)
		if _, err := io.WriteString(conn, request[:len(request)-10]); err != nil {
			t.Fatal(err)
		}
		// The server asks for the body once it has taken the key.
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("got %q, %v", line, err)
		}
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return func() (*http.Response, string) {
			if _, err := io.WriteString(conn, request[len(request)-10:]); err != nil {
				t.Fatal(err)
			}
			return readResponse(t, in)
		}
	}
	made := hold("/rpc", "Bearer "+r.key.Reveal(), `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"read"}}`)
	sent := hold("/agent/a", agents, `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"late"}}`)
	if revoked, err := r.keys.Revoke(id); !revoked || err != nil {
		t.Fatal(err)
	}
	if _, err := r.keys.Rotate(0); err != nil {
		t.Fatal(err)
	}
	for name, finish := range map[string]func() (*http.Response, string){"a key": made, "a turn": sent} {
		if response, body := finish(); response.StatusCode != 403 || gjson.Get(body, "error.data.type").Str != "AUTHENTICATION_FAILED" {
			t.Errorf("%s: HTTP %d %s", name, response.StatusCode, body)
		}
	}
	if left := r.keys.List(); len(left) != 0 {
		t.Errorf("there are keys: %+v", left)
	}
}

// A code of create_page_code gives the full key once, and only while the key that asked
// for the code is good; only the full key makes one.
func TestPageCode(t *testing.T) {
	r := rigged(t, nil)
	code := func() string {
		t.Helper()
		_, body := r.post("/", callBody("create_page_code"))
		made := gjson.Get(body, "result")
		if made.Get("url").Str != "http://"+r.addr+"/#code="+made.Get("code").Str {
			t.Fatalf("create_page_code: %s", body)
		}
		return made.Get("code").Str
	}
	give := func(header string) (int, string) {
		response, body := r.do("POST", "/page/key", nil, "Authorization", header)
		return response.StatusCode, body
	}
	made := code()
	if status, body := give("Code " + made); status != 200 || gjson.Get(body, "key").Str != r.key.Reveal() {
		t.Errorf("a new code: HTTP %d %s", status, body)
	}
	for name, header := range map[string]string{
		"a used code": "Code " + made, "no code": "", "a key": "Bearer " + r.key.Reveal(), "a key as a code": "Code " + r.key.Reveal(),
		"a code as a key": "Bearer " + code(),
	} {
		if status, body := give(header); status != 403 || gjson.Get(body, "key").Exists() {
			t.Errorf("%s: HTTP %d %s", name, status, body)
		}
	}
	if response, _ := r.do("GET", "/page/key", nil, "Authorization", "Code "+code()); response.StatusCode != 405 {
		t.Errorf("by GET: HTTP %d", response.StatusCode)
	}
	if response, body := r.do("POST", "/page/key", strings.NewReader("{}"), "Authorization", "Code "+code()); response.StatusCode != 400 ||
		gjson.Get(body, "error.data.details").Str != "a request of this path has no body" {
		t.Errorf("with a body: HTTP %d %s", response.StatusCode, body)
	}
	bearer, _ := r.scoped(auth.ScopeRead, "")
	if _, body := r.post("/", callBody("create_page_code"), "Authorization", bearer); gjson.Get(body, "error.data.type").Str != "NOT_PERMITTED" {
		t.Errorf("by a key for reading: %s", body)
	}
	// The key that rotate_key replaces does not get the new one, nor makes others.
	last := code()
	if _, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"rotate_key","params":{"grace_s":60}}`); !gjson.Get(body, "result.rotated").Bool() {
		t.Fatal(body)
	}
	if status, body := give("Code " + last); status != 403 || gjson.Get(body, "key").Exists() {
		t.Errorf("a code of a key in its grace: HTTP %d", status)
	}
	for _, one := range []string{
		callBody("create_page_code"), callBody("rotate_key"), `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"read"}}`,
	} {
		if _, body := r.post("/", one); gjson.Get(body, "error.data.type").Str != "NOT_PERMITTED" {
			t.Errorf("by a key in its grace: %s", body)
		}
	}
	now, err := auth.Read(r.keys.Path())
	if err != nil {
		t.Fatal(err)
	}
	r.key = now
	last = code()
	if _, body := r.post("/", callBody("rotate_key")); !gjson.Get(body, "result.rotated").Bool() {
		t.Fatal(body)
	}
	if status, _ := give("Code " + last); status != 403 {
		t.Errorf("a code of a key that has ended: HTTP %d", status)
	}
}

// A key that rotate_key has replaced creates no agent without walls: `cat server.key` as its program was the new key.
func TestReplacedKeyCreatesNoAgentWithoutWalls(t *testing.T) {
	r := rigged(t, nil)
	if _, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"rotate_key","params":{"grace_s":60}}`); !gjson.Get(body, "result.rotated").Bool() {
		t.Fatal(body)
	}
	now, err := auth.Read(r.keys.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		params string
		open   bool
	}{
		{`"agent_id":"own"`, false},
		{`"agent_id":"kind","kind":"copycat"`, true},
		{`"agent_id":"command","kind":"script","command":["cat","` + r.keys.Path() + `"]`, true},
		{`"agent_id":"unwalled","kind":"copycat","sandbox":false`, true},
		{`"agent_id":"yolo","preset":"yolo"`, true},
		{`"agent_id":"walled","kind":"copycat","sandbox":true`, false},
		{`"agent_id":"sandboxed","kind":"copycat","preset":"sandboxed"`, false},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{` + tt.params + `}}`
		if _, answer := r.post("/", body); (gjson.Get(answer, "error.data.type").Str == "NOT_PERMITTED") != tt.open || !tt.open && !gjson.Get(answer, "result.agent_id").Exists() {
			t.Errorf("by the key in its grace: %s: %s", tt.params, answer)
		}
		if _, answer := r.post("/", body, "Authorization", "Bearer "+now.Reveal()); gjson.Get(answer, "error.data.type").Str == "NOT_PERMITTED" {
			t.Errorf("by the new key: %s: %s", tt.params, answer)
		}
	}
}
