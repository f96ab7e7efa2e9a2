package bridge_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// TestStatusTable is what HTTP and JSON-RPC say of each condition (SPEC §6.1 and
// §6.2), against a server that listens. What takes more to come about is in
// TestQueueFull, TestFailedAgent, TestDrain and the tests of rates.
func TestStatusTable(t *testing.T) {
	begun := make(chan string, 100)
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			begun <- p.Message
			switch p.Message {
			case "crash":
				c.Crash(supervisor.Exit{Code: 3})
			case "hang":
				select {
				case <-c.Aborted():
					c.Finish(p, "")
				case <-c.Gone():
				}
			default:
				supervisortest.Echo(c, p)
			}
		})(r, o)
		o.ReadTimeout = 200 * time.Millisecond
	})
	r.create("a")
	r.create("busy")
	go func() { // until the server ends
		_, _ = r.client.Send(context.Background(), "busy", api.SendParams{Content: "hang"})
	}()
	<-begun

	rpc := func(path, key, more, body string) string {
		head := "POST " + path + " HTTP/1.1\r\nHost: " + r.addr + "\r\n"
		if key != "" {
			head += "Authorization: Bearer " + key + "\r\n"
		}
		return withLength(head+more, body)
	}
	key := r.key.Reveal()
	list := `{"jsonrpc":"2.0","method":"list_agents","id":1}`
	send := func(content, more string) string {
		return `{"jsonrpc":"2.0","method":"send","params":{"content":"` + content + `"` + more + `},"id":1}`
	}
	for _, test := range []struct {
		name    string
		request string
		status  int
		code    int64  // 0: no error
		message string // its beginning
		kind    string // data.type
	}{
		{"no key", rpc("/", "", "", list), 401, -32003, "Authorization header required", "AUTHENTICATION_REQUIRED"},
		{"wrong key", rpc("/", auth.Generate().Reveal(), "", list), 403, -32003, "Invalid API key", "AUTHENTICATION_FAILED"},
		{"Host not ours", strings.Replace(rpc("/", key, "", list), r.addr, "example.org", 1), 403, -32003, "Host", "FORBIDDEN_HOST"},
		{"Host empty", strings.Replace(rpc("/", key, "", list), " "+r.addr, "", 1), 403, -32003, "Host", "FORBIDDEN_HOST"},
		{"Origin", rpc("/", key, "Origin: http://evil.example\r\n", list), 403, -32003, "Origin", "FORBIDDEN_ORIGIN"},
		{"not POST on an RPC path", r.head("GET /rpc HTTP/1.1") + "\r\n", 405, -32600, "", "METHOD_NOT_ALLOWED"},
		{"unknown path", rpc("/nothing", key, "", list), 404, -32602, "Not found. ", "NOT_FOUND"},
		{"unknown agent", rpc("/agent/nobody", key, "", send("x", "")), 404, -32602, "Agent not found: nobody", "AGENT_NOT_FOUND"},
		{"body over 1 MiB, declared", rpc("/", key, "", strings.Repeat(" ", 1<<20)+list), 413, -32600, "", "BODY_TOO_LARGE"},
		{
			"body over 1 MiB, chunked",
			r.head("POST / HTTP/1.1") + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", 1<<20+1, strings.Repeat(" ", 1<<20+1)),
			413, -32600, "", "BODY_TOO_LARGE",
		},
		{"body type neither JSON nor curl's default", rpc("/", key, "Content-Type: text/plain\r\n", list), 415, -32600, "", "UNSUPPORTED_MEDIA_TYPE"},
		{"curl's default", rpc("/", key, "Content-Type: application/x-www-form-urlencoded\r\n", list), 200, 0, "", ""},
		{"too slow", r.head("POST / HTTP/1.1") + "Content-Length: 10\r\n\r\n{", 408, -32600, "", "REQUEST_TIMEOUT"},
		{"bad JSON", rpc("/", key, "", "{"), 400, -32700, "Parse error", "PARSE_ERROR"},
		{"not a request object", rpc("/", key, "", `{"foo":1}`), 400, -32600, "Invalid Request", "INVALID_REQUEST"},
		{"positional params", rpc("/", key, "", `{"jsonrpc":"2.0","method":"list_agents","params":[],"id":1}`), 200, -32602, "", "INVALID_PARAMS"},
		{"agent busy", rpc("/agent/busy", key, "", send("x", `,"when_busy":"reject"`)), 200, -32001, "Resource unavailable", "AGENT_BUSY"},
		{"turn time exceeded", rpc("/agent/a", key, "", send("hang", `,"timeout_s":0.01`)), 200, -32000, "Execution timeout", "TIMEOUT"},
		{"child crashed in the turn", rpc("/agent/a", key, "", send("crash", "")), 200, -32000, "Execution failed", "CHILD_CRASHED"},
		{"anything dispatched", rpc("/", key, "", `{"jsonrpc":"2.0","method":"none","id":1}`), 200, -32601, "Method not found: none", "METHOD_NOT_FOUND"},
		{"notifications only", rpc("/", key, "", `{"jsonrpc":"2.0","method":"list_agents"}`), 204, 0, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := r.raw(test.request)
			if response.StatusCode != test.status {
				t.Errorf("status %d, want %d", response.StatusCode, test.status)
			}
			failure := gjson.Get(body, "error")
			if failure.Get("code").Int() != test.code || failure.Get("data.type").Str != test.kind || !strings.HasPrefix(failure.Get("message").Str, test.message) {
				t.Errorf("got %s", body)
			}
			if (response.Header.Get("Allow") != "") != (test.status == http.StatusMethodNotAllowed) {
				t.Errorf("Allow is %q", response.Header.Get("Allow"))
			}
			if test.code == 0 {
				if (body == "") != (test.status == http.StatusNoContent) {
					t.Errorf("the body is %q", body)
				}
				return
			}
			want := []string{"code", "message", "data"}
			var members []string
			failure.ForEach(func(key, _ gjson.Result) bool { members = append(members, key.Str); return true })
			if diff := cmp.Diff(want, members); diff != "" || gjson.Get(body, "jsonrpc").Str != "2.0" || !gjson.Get(body, "id").Exists() {
				t.Errorf("it is no whole error of the specification: %s", body)
			}
			for _, member := range []string{"type", "details", "recovery_suggestions"} {
				if !failure.Get("data." + member).Exists() {
					t.Errorf("data lacks %s: %s", member, body)
				}
			}
		})
	}
}

// TestSpecification has the examples of the JSON-RPC 2.0 specification, section
// 7, with its own ids and codes as answers. Where an example calls a method that
// adds or subtracts, ours is list_agents; where it gives parameters by position,
// the answer is -32602: ours are given by name.
func TestSpecification(t *testing.T) {
	r := rigged(t, nil)
	for _, test := range []struct {
		name    string
		request string
		status  int
		want    string // {id code} of each answer; code 0 is a result
	}{
		{"positional parameters", `{"jsonrpc": "2.0", "method": "list_agents", "params": [42, 23], "id": 1}`, 200, "{1 -32602}"},
		{"named parameters", `{"jsonrpc": "2.0", "method": "list_agents", "params": {}, "id": 3}`, 200, "{3 0}"},
		{"a notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, 204, ""},
		{"a notification without params", `{"jsonrpc": "2.0", "method": "foobar"}`, 204, ""},
		{"non-existent method", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`, 200, `{"1" -32601}`},
		{"invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, 400, "{null -32700}"},
		{"invalid Request object", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`, 400, "{null -32600}"},
		{
			"batch, invalid JSON", `[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method"]`,
			400, "{null -32700}",
		},
		{"empty array", `[]`, 400, "{null -32600}"},
		{"invalid batch (but not empty)", `[1]`, 200, "[{null -32600}]"},
		{"invalid batch", `[1,2,3]`, 200, "[{null -32600} {null -32600} {null -32600}]"},
		{
			"batch", `[
				{"jsonrpc": "2.0", "method": "list_agents", "params": {}, "id": "1"},
				{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
				{"jsonrpc": "2.0", "method": "list_agents", "params": [42,23], "id": "2"},
				{"foo": "boo"},
				{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
				{"jsonrpc": "2.0", "method": "list_agents", "id": "9"}
			]`, 200, `[{"1" 0} {"2" -32602} {null -32600} {"5" -32601} {"9" 0}]`,
		},
		{
			"batch of notifications", `[
				{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
				{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
			]`, 204, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := r.post("/", test.request)
			parsed, got := gjson.Parse(body), ""
			switch {
			case parsed.IsArray():
				var all []string
				for _, one := range parsed.Array() {
					all = append(all, answerOf(one))
				}
				got = fmt.Sprint(all)
			case body != "":
				got = answerOf(parsed)
			}
			if response.StatusCode != test.status || got != test.want {
				t.Errorf("got %d %s, want %d %s: %s", response.StatusCode, got, test.status, test.want, body)
			}
		})
	}
}

// answerOf is the id of an answer, as it was written, and its code.
func answerOf(answer gjson.Result) string {
	return fmt.Sprintf("{%s %d}", answer.Get("id").Raw, answer.Get("error.code").Int())
}
