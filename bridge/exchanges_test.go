//go:build unix

package bridge_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/supervisor"
)

// exchange is what is asked and what must be answered.
type exchange struct {
	name    string // of the file in fixtures/rpc/errors
	row     string // how the condition begins in the table of SPEC §6.2
	status  int    // of HTTP; 0 for a host call
	code    int
	message string // whole; of a host call, the beginning
	kind    string // data.type
	request string // as in TestGolden; of a host call, the method and the parameters

	change func(*bridge.Options)
	policy supervisor.Policy
	before func(*stage) // the condition comes about
	during func(*stage) // once it is asked
}

// post is a request with the key.
func post(path, body string, headers ...string) string {
	return "POST " + path + " HTTP/1.1\nHost: $HOST\nAuthorization: Bearer $KEY\n" + strings.Join(append(headers, ""), "\n") + "\n" + body + "\n"
}

// rpc is a request with the key, of a method.
func rpc(path, method, params string) string {
	return post(path, `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`,"id":1}`)
}

const (
	get     = " HTTP/1.1\nHost: $HOST\nAuthorization: Bearer $KEY\n\n"
	keyless = "POST /rpc HTTP/1.1\nHost: $HOST\n"

	unavail  = "Resource unavailable"
	sendThis = `{"content":"hello","request_id":"r"}`
)

// full is a disk that takes no outcome.
func full(s *stage) {
	disk := &fullDisk{}
	disk.full.Store(true)
	s.records = func(string) (supervisor.Records, error) { return disk, nil }
	s.create("b")
}

var exchanges = []exchange{
	{name: "json", row: "not JSON", status: 400, code: -32700, message: "Parse error", kind: "PARSE_ERROR", request: post("/rpc", "{")},
	{name: "request", row: "no request;", status: 400, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", `{"foo":1}`)},
	{name: "batch", row: "no request;", status: 400, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", "[]")},
	{name: "target", row: "HTTP itself", status: 400, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: "POST http://$HOST/rpc" + get},
	{name: "headers", row: "HTTP itself", status: 431, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", "", "X: $LONG")},
	{name: "coding", row: "HTTP itself", status: 501, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", "", "Transfer-Encoding: br")},
	{name: "expectation", row: "HTTP itself", status: 417, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", "", "Expect: more")},
	{
		name: "version", row: "HTTP itself", status: 505, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST",
		request: "POST /rpc HTTP/3.0\nHost: $HOST\n\n",
	},
	{name: "gzip", row: "HTTP itself", status: 400, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST", request: post("/rpc", "{}", "Content-Encoding: gzip")},
	{
		name: "slow", row: "it is not whole", status: 408, code: -32600, message: "Request timeout", kind: "REQUEST_TIMEOUT",
		request: post("/rpc", "", "Content-Length: 10"),
		change:  func(o *bridge.Options) { o.ReadTimeout = time.Second },
	},
	{
		name: "host", row: "Host is not", status: 403, code: -32003, message: "Host not allowed", kind: "FORBIDDEN_HOST",
		request: "POST /rpc HTTP/1.1\nHost: example.org\nAuthorization: Bearer $KEY\n\n" + list,
	},
	{
		name: "host-empty", row: "Host is not", status: 403, code: -32003, message: "Host not allowed", kind: "FORBIDDEN_HOST",
		request: "POST /rpc HTTP/1.1\nHost:\nAuthorization: Bearer $KEY\n\n" + list,
	},
	{
		name: "origin", row: "an Origin", status: 403, code: -32003, message: "Origin not allowed", kind: "FORBIDDEN_ORIGIN",
		request: post("/rpc", list, "Origin: http://evil.example"),
	},
	{name: "http-method", row: "the HTTP method", status: 405, code: -32600, message: "Method not allowed", kind: "METHOD_NOT_ALLOWED", request: "GET /rpc" + get},
	{
		name: "no-key", row: "no key", status: 401, code: -32003, message: "Authorization header required", kind: "AUTHENTICATION_REQUIRED",
		request: keyless + "\n" + list,
	},
	{
		name: "unsigned", row: "no signature", status: 401, code: -32003, message: "Signature required", kind: "AUTHENTICATION_REQUIRED",
		request: post("/rpc", list), change: func(o *bridge.Options) { o.RequireSignatures = true },
	},
	{
		name: "wrong-key", row: "a wrong key", status: 403, code: -32003, message: "Invalid API key", kind: "AUTHENTICATION_FAILED",
		request: keyless + "Authorization: Bearer nxk_of_another_server\n\n" + list,
	},
	{
		name: "wrong-code", row: "a wrong one-time code", status: 403, code: -32003, message: "Invalid code", kind: "AUTHENTICATION_FAILED",
		request: "POST /page/key HTTP/1.1\nHost: $HOST\nAuthorization: Code nxc_of_another_server\n\n",
	},
	{
		name: "wrong-signature", row: "a wrong signature", status: 403, code: -32003, message: "Invalid signature", kind: "AUTHENTICATION_FAILED",
		request: post("/rpc", `{"jsonrpc":"2.0","method":"list_agents","id":1,"auth":{"timestamp":1,"signature":"AAAA"}}`),
	},
	{
		name: "path", row: "nothing is at the path", status: 404, code: -32602, message: "Not found. Use POST /, POST /rpc or POST /agent/{id}.",
		kind: "NOT_FOUND", request: post("/nothing", list),
	},
	{
		name: "large", row: "a body over", status: 413, code: -32600, message: "Request body too large", kind: "BODY_TOO_LARGE",
		request: post("/rpc", "", "Content-Length: 1048577"),
	},
	{
		name: "media-type", row: "a body of another type", status: 415, code: -32600, message: "Unsupported media type", kind: "UNSUPPORTED_MEDIA_TYPE",
		request: post("/rpc", list, "Content-Type: text/plain"),
	},
	{
		name: "event-number", row: "the query", status: 400, code: -32602, message: "Invalid parameter after: want a non-negative integer",
		kind: "INVALID_PARAMS", request: "GET /agent/a/events?after=x" + get,
	},
	{
		name: "event-header", row: "the query", status: 400, code: -32602, message: "Invalid header Last-Event-ID: want a non-negative integer",
		kind: "INVALID_PARAMS", request: strings.Replace("GET /agent/a/events"+get, "\n\n", "\nLast-Event-ID: x\n\n", 1),
	},
	{
		name: "event-query", row: "the query", status: 400, code: -32602, message: "Unknown parameter: x",
		kind: "INVALID_PARAMS", request: "GET /events?x=1" + get,
	},
	{
		name: "event-escape", row: "the query", status: 400, code: -32602, message: "Invalid query: want NAME=VALUE&…",
		kind: "INVALID_PARAMS", request: "GET /docs?x=%zz" + get,
	},
	{
		name: "challenge", row: "the query", status: 400, code: -32602, message: "Invalid parameter challenge",
		kind: "INVALID_PARAMS", request: "GET /healthz?challenge=short" + get,
	},
	{name: "method", row: "no such method", status: 200, code: -32601, message: "Method not found: none", kind: "METHOD_NOT_FOUND", request: rpc("/rpc", "none", "{}")},
	{
		name: "method-elsewhere", row: "no such method", status: 200, code: -32601, message: "Method not found: send", kind: "METHOD_NOT_FOUND",
		request: rpc("/rpc", "send", "{}"),
	},
	{
		name: "method-misspelt", row: "no such method", status: 200, code: -32601, message: "Method not found: get_agents_summaries", kind: "METHOD_NOT_FOUND",
		request: rpc("/rpc", "get_agents_summaries", "{}"),
	},
	{
		name: "parameter-missing", row: "parameters", status: 200, code: -32602, message: "Missing required parameter: agent_id", kind: "INVALID_PARAMS",
		request: rpc("/rpc", "destroy_agent", "{}"),
	},
	{
		name: "parameter-unknown", row: "parameters", status: 200, code: -32602, message: "Unknown parameter: x", kind: "INVALID_PARAMS",
		request: rpc("/rpc", "list_agents", `{"x":1}`),
	},
	{
		name: "parameter-type", row: "parameters", status: 200, code: -32602, message: "Invalid parameter agent_id: must be a string, is the number 5",
		kind: "INVALID_PARAMS", request: rpc("/rpc", "destroy_agent", `{"agent_id":5}`),
	},
	{
		name: "parameters-positional", row: "parameters", status: 200, code: -32602, message: "Invalid params: want an object, have an array",
		kind: "INVALID_PARAMS", request: rpc("/rpc", "list_agents", "[]"),
	},
	{
		name: "agent-exists", row: "the agent exists", status: 200, code: -32602, message: "Agent already exists: a", kind: "AGENT_EXISTS",
		request: rpc("/rpc", "create_agent", `{"agent_id":"a"}`),
	},
	{
		name: "request-id", row: "`request_id` with other content", status: 200, code: -32602, kind: "REQUEST_ID_CONFLICT",
		message: "Invalid parameter request_id: was used before with other content", request: rpc("/agent/a", "send", sendThis),
		before: func(s *stage) { s.await(s.sendAsync("a", api.SendParams{Content: "bye", RequestID: new("r")})) },
	},
	{
		name: "agent-not-found", row: "no such agent", status: 404, code: -32602, message: "Agent not found: nobody", kind: "AGENT_NOT_FOUND",
		request: rpc("/agent/nobody", "send", sendThis),
	},
	{
		name: "session-not-found", row: "no such session", status: 404, code: -32602, message: "Session not found: nobody", kind: "SESSION_NOT_FOUND",
		request: rpc("/rpc", "clone_session", `{"src_session":"nobody","dest_session":"b"}`),
	},
	{
		name: "session-exists", row: "the session exists", status: 200, code: -32602, message: "Session already exists: c", kind: "SESSION_EXISTS",
		request: rpc("/rpc", "clone_session", `{"src_session":"b","dest_session":"c"}`),
		before: func(s *stage) {
			s.save("home/sessions/b.jsonl", []byte(savedText), 1)
			s.save("home/sessions/c.jsonl", []byte(savedText), 2)
		},
	},
	{
		name: "session-damaged", row: "the session cannot be read", status: 200, code: -32000, message: "Session damaged: b", kind: "SESSION_DAMAGED",
		request: rpc("/rpc", "load_session", `{"session_name":"b"}`),
		before:  func(s *stage) { s.save("home/sessions/b.jsonl", []byte(savedText+"nonsense\n"+savedText), 1) },
	},
	{
		name: "directory-gone", row: "the session's working directory is gone or may not be entered", status: 200, code: -32001, message: unavail, kind: "DIRECTORY_GONE",
		request: rpc("/rpc", "create_agent", `{"agent_id":"b","cwd":"/"}`),
		change: func(o *bridge.Options) {
			o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
				if s.ID == "b" {
					return &agents.MissingDirError{Session: "b", Cwd: "/gone", Err: fs.ErrNotExist, Wanted: s.Cwd, Allowed: []string{"/srv/data"}}
				}
				return nil
			}}
		},
	},
	{
		name: "session-in-use", row: "another process has the session", status: 200, code: -32001, message: unavail, kind: "SESSION_IN_USE",
		request: rpc("/rpc", "delete_session", `{"session_name":"b"}`), before: locked,
	},
	{
		name: "agent-running", row: "the session's agent runs", status: 200, code: -32001, message: unavail, kind: "AGENT_RUNNING",
		request: rpc("/rpc", "delete_session", `{"session_name":"a"}`),
		before:  func(s *stage) { s.save("home/sessions/a.jsonl", []byte(savedText), 1) },
	},
	{
		name: "storage-full", row: "the disk has no room for a change", status: 200, code: -32001, message: unavail, kind: "STORAGE_FULL",
		request: rpc("/agent/full", "set_model", `{"model":"x"}`), before: func(s *stage) { s.create("full") },
	},
	{
		name: "too-many-agents", row: "the agents created for one", status: 200, code: -32001, message: unavail, kind: "TOO_MANY_AGENTS",
		request: rpc("/rpc", "create_agent", `{"agent_id":"c","parent_agent_id":"one"}`), before: func(s *stage) { s.create("one") },
	},
	{
		name: "not-recorded", row: "it could not be saved", status: 200, code: -32001, message: unavail, kind: "NOT_RECORDED",
		request: rpc("/agent/b", "send", sendThis), before: full,
	},
	{
		name: "queue-full", row: "queue full", status: 200, code: -32001, message: unavail, kind: "QUEUE_FULL", request: rpc("/agent/a", "send", sendThis),
		before: func(s *stage) {
			s.hang()
			for i := range 8 {
				s.sendAsync("a", api.SendParams{Content: "waits", RequestID: new(strconv.Itoa(i))})
			}
			s.queued("a", 8)
		},
	},
	{
		name: "agent-busy", row: "queue full", status: 200, code: -32001, message: unavail, kind: "AGENT_BUSY", before: (*stage).hang,
		request: rpc("/agent/a", "send", `{"content":"hello","when_busy":"reject"}`),
	},
	{
		name: "agent-failed", row: "queue full", status: 200, code: -32001, message: unavail, kind: "AGENT_FAILED", request: rpc("/agent/a", "send", sendThis),
		policy: supervisor.Policy{Limit: -1},
		before: func(s *stage) { s.await(s.sendAsync("a", api.SendParams{Content: "crash"})) },
	},
	{
		name: "agent-stopped", row: "queue full", status: 200, code: -32001, message: unavail, kind: "AGENT_STOPPED",
		request: rpc("/agent/mute", "get_tokens", `{}`),
		before:  func(s *stage) { s.create("mute") },
		during: func(s *stage) {
			<-s.begun
			if _, err := client.Do(s.ctx(), s.client, "mute", api.Shutdown, api.None{}); err != nil {
				s.t.Error(err)
			}
		},
	},
	{
		name: "streams", row: "256 event streams", status: 503, code: -32001, message: unavail, kind: "TOO_MANY_STREAMS", request: "GET /events" + get,
		before: func(s *stage) {
			for range 256 {
				conn := s.dial()
				if _, err := conn.Write([]byte(s.expand("GET /events" + get))); err != nil {
					s.t.Fatal(err)
				}
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					s.t.Fatal(err)
				}
			}
		},
	},
	{
		name: "permission-request", row: "a permission request", status: 200, code: -32602, message: "Permission request not found",
		kind: "PERMISSION_REQUEST_NOT_FOUND", request: rpc("/agent/a", "respond_permission", `{"request_id":"p1","decision":"deny"}`),
	},
	{
		name: "host-not-permitted", row: "an agent asks for what", code: -32003, message: "Not permitted", kind: "NOT_PERMITTED",
		request: `shutdown_server {}`,
	},
	{
		name: "key-not-for-method", row: "the key is not good for the method", status: 200, code: -32003, message: "Not permitted", kind: "NOT_PERMITTED",
		request: strings.Replace(rpc("/rpc", "shutdown_server", "{}"), "$KEY", "$READER", 1),
	},
	{
		name: "key-not-for-path", row: "the path is not the key's", status: 403, code: -32003, message: "Not permitted", kind: "NOT_PERMITTED",
		request: strings.Replace(rpc("/rpc", "list_agents", "{}"), "$KEY", "$AGENT_KEY", 1),
	},
	{
		name: "rate", row: "too many requests", status: 429, code: -32002, message: "Too many requests", kind: "RATE_LIMITED",
		request: rpc("/rpc", "list_agents", "{}"),
		change:  func(o *bridge.Options) { o.RequestsPerMinute = 1 },
	},
	{
		name: "batch-over-rate", row: "no request;", status: 400, code: -32600, message: "Invalid Request", kind: "INVALID_REQUEST",
		request: post("/rpc", "["+list+","+list+","+list+"]"),
		change:  func(o *bridge.Options) { o.RequestsPerMinute = 2 },
	},
	{
		name: "keys", row: "256 keys", status: 200, code: -32001, message: unavail, kind: "TOO_MANY_KEYS", request: rpc("/rpc", "create_key", `{"scope":"read"}`),
		before: func(s *stage) {
			for {
				if _, _, err := s.keys.Add(grant(auth.ScopeRead, "")); errors.Is(err, auth.ErrTooMany) {
					return
				} else if err != nil {
					s.t.Fatal(err)
				}
			}
		},
	},
	{
		name: "files", row: "the server may open no more files", status: 200, code: -32001, message: unavail, kind: "TOO_MANY_FILES",
		request: rpc("/rpc", "validate_code", `{"code":"files","language":"go"}`),
	},
	{
		name: "host-deadlock", row: "a host call that would wait", code: -32001, message: unavail, kind: "WOULD_DEADLOCK",
		request: `send {"agent_id":"a","content":"x"}`,
	},
	{
		name: "draining", row: "the server is going down", status: 503, code: -32001, message: unavail, kind: "SERVER_DRAINING", request: post("/rpc", discover),
		change: func(o *bridge.Options) { o.DrainTimeout = patience },
		before: func(s *stage) { // with a turn that keeps it, and its connections, for a while
			s.hang()
			s.t.Cleanup(func() { close(s.close) })
			if _, err := client.Do(s.ctx(), s.client, "", api.ShutdownServer, api.None{}); err != nil {
				s.t.Fatal(err)
			}
			for {
				if _, body := s.do(http.MethodGet, "/healthz", nil); gjson.Get(body, "status").Str == "draining" {
					return
				}
			}
		},
	},
	{
		name: "node", row: "the machine that has the agent", status: 503, code: -32001, message: unavail, kind: "NODE_UNREACHABLE",
		request: rpc("/agent/far", "get_model", "{}"), change: apart,
	},
	{
		name: "quorum", row: "a majority of the machines is not reached", status: 503, code: -32001, message: unavail, kind: "NO_QUORUM",
		request: rpc("/rpc", "create_agent", `{"agent_id":"disputed"}`), change: apart,
	},
	{
		name: "timeout", row: "`timeout_s` exceeded", status: 200, code: -32000, message: "Execution timeout", kind: "TIMEOUT",
		request: rpc("/agent/a", "send", `{"content":"hang","request_id":"r","timeout_s":0.01}`),
	},
	{
		name: "crash", row: "the child crashed", status: 200, code: -32000, message: "Execution failed", kind: "CHILD_CRASHED",
		request: rpc("/agent/a", "send", `{"content":"crash","request_id":"r"}`),
	},
	{
		name: "start", row: "the child did not start", status: 200, code: -32000, message: "Execution failed", kind: "START_FAILED",
		request: rpc("/rpc", "create_agent", `{"agent_id":"broken"}`),
	},
	{
		name: "plan-record", row: "the record of a run", status: 200, code: -32000, message: "Execution failed", kind: "PLAN_RECORD_DAMAGED",
		request: rpc("/rpc", "cancel", `{"request_id":"run"}`),
		before:  func(s *stage) { s.save("home/plans/run.jsonl", []byte("nonsense\n"), 1) },
	},
	{
		name: "shape", row: "the agent's answer", status: 200, code: -32000, message: "Execution failed", kind: "EXECUTION_ERROR",
		request: rpc("/agent/a", "execute_task", `{"task_type":"testing","prompt":"x","request_id":"r"}`),
	},
	{
		name: "unsupported", row: "the program of an agent of another make", status: 200, code: -32601, message: "compact: an agent of kind copycat does not offer this", kind: "UNSUPPORTED",
		request: rpc("/agent/copycat", "compact", `{}`),
		before:  func(s *stage) { s.create("copycat") },
	},
	{
		name: "unsupported-change", row: "the program of an agent of another make", status: 200, code: -32601, message: "set_model: an agent of kind copycat does not offer this", kind: "UNSUPPORTED",
		request: rpc("/agent/copycat", "set_model", `{"model":"x"}`),
		before:  func(s *stage) { s.create("copycat") },
	},
	{
		name: "no-checker", row: "no checker", status: 200, code: -32001, message: unavail, kind: "CHECKER_NOT_FOUND",
		request: rpc("/rpc", "validate_code", `{"code":"x","language":"rust"}`),
	},
	{
		name: "checker", row: "the checker", status: 200, code: -32000, message: "Execution failed", kind: "EXECUTION_ERROR",
		request: rpc("/rpc", "validate_code", `{"code":"strange","language":"go"}`),
	},
	{
		name: "plan-cancelled", row: "the making of a plan", status: 200, code: -32000, message: "Execution failed", kind: "CANCELLED",
		request: rpc("/agent/a", "create_plan", `{"user_request":"x","request_id":"r"}`),
		during: func(s *stage) {
			<-s.begun
			if _, err := client.Do(s.ctx(), s.client, "a", api.Cancel, api.CancelParams{RequestID: "r"}); err != nil {
				s.t.Error(err)
			}
		},
	},
	{
		name: "batch-answer", row: "results of a batch", status: 200, code: -32000, message: "Response too large", kind: "RESPONSE_TOO_LARGE",
		request: post("/agent/a", "["+much("one")+","+much("two")+","+much("three")+"]"),
	},
	{
		name: "failure", row: "the child reported another", status: 200, code: -32603, message: "the model is gone", kind: "EXECUTION_ERROR",
		request: rpc("/agent/a", "send", `{"content":"fail","request_id":"r"}`),
	},
	{
		name: "service-rate-limited", row: "the model's service, or a limit", status: 200, code: -32002, message: "the model is gone", kind: "RATE_LIMITED",
		request: rpc("/agent/a", "send", `{"content":"fail for rate_limited","request_id":"r"}`),
	},
	{
		name: "service-credentials", row: "the key for the model's", status: 200, code: -32003, message: "the model is gone", kind: "CREDENTIALS",
		request: rpc("/agent/a", "send", `{"content":"fail for credentials","request_id":"r"}`),
	},
	{
		name: "service-unreachable", row: "the model's service cannot", status: 200, code: -32001, message: "the model is gone", kind: "UNREACHABLE",
		request: rpc("/agent/a", "send", `{"content":"fail for unreachable","request_id":"r"}`),
	},
	{
		name: "service-budget-exceeded", row: "the money", status: 200, code: -32001, message: "the model is gone", kind: "BUDGET_EXCEEDED",
		request: rpc("/agent/a", "send", `{"content":"fail for budget_exceeded","request_id":"r"}`),
	},
	{
		name: "service-content-refused", row: "the model's service refuses", status: 200, code: -32000, message: "the model is gone", kind: "CONTENT_REFUSED",
		request: rpc("/agent/a", "send", `{"content":"fail for content_refused","request_id":"r"}`),
	},
	{ // the command stands there once
		name: "failure-named", row: "the child reported another", status: 200, code: -32603, message: "send: it cannot be saved", kind: "EXECUTION_ERROR",
		request: rpc("/agent/a", "send", `{"content":"fail by name","request_id":"r"}`),
	},
	{
		name: "unforeseen", row: "anything else", status: 200, code: -32603, message: "Internal error", kind: "INTERNAL_ERROR",
		request: rpc("/rpc", "validate_code", `{"code":"unforeseen","language":"go"}`),
	},
}

// apart is a server of a cluster whose other machine has the agent far, and is not reached.
func apart(o *bridge.Options) {
	c := newCluster("here", "there")
	c.claims["far"], c.down["there"] = "there", true
	o.Machines = &machine{c, "here"}
}

// much asks for a long answer.
func much(id string) string {
	return `{"jsonrpc":"2.0","method":"send","params":{"content":"much","request_id":"` + id + `"},"id":"` + id + `"}`
}

// locked has another process's lock on session b.
func locked(s *stage) {
	s.save("home/sessions/b.jsonl", []byte(savedText), 1)
	f, err := os.OpenFile(filepath.Join(s.home, "sessions", "b.jsonl"), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		s.t.Fatal(err)
	}
}
