package bridge_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/logfile"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// watched starts a server with an audit log; changes reads that.
func watched(t *testing.T, turn func(*supervisortest.Child, protocol.Prompt)) (r *rig, changes func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := logfile.OpenTiers(path, logfile.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	r = rigged(t, func(r *rig, o *bridge.Options) {
		plays(turn)(r, o)
		o.Audit = log
		o.Status = figures{running: 3}
	})
	return r, func() (lines []string) {
		for _, name := range logfile.TierFiles(path) {
			data, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			lines = slices.AppendSeq(lines, strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n"))
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
		slices.SortStableFunc(lines, func(a, b string) int {
			return gjson.Get(a, "timestamp").Time().Compare(gjson.Get(b, "timestamp").Time())
		})
		return lines
	}
}

// Who created, approved, changed and destroyed is in the audit log, with what
// came of it, before the answer is there; what was only read or said is not.
func TestAudit(t *testing.T) {
	r, changes := watched(t, func(c *supervisortest.Child, p protocol.Prompt) {
		if p.Message == "ask" {
			c.Permission(p, protocol.PermissionRequest{ToolName: "shell", Action: protocol.ActionExecute, Deadline: "2026-01-20T09:11:02Z"})
		} else if method, params, ok := strings.Cut(p.Message, " "); ok {
			c.Host(p, method, params)
		}
		c.Finish(p, "done")
	})
	call := func(path, method, params string) string {
		_, body := r.post(path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
		return body
	}
	call("/", "create_agent", `{"agent_id":"trusted","preset":"trusted"}`)
	call("/", "create_agent", `{"agent_id":"trusted"}`)
	call("/", "list_agents", `{}`)
	call("/agent/trusted", "send", `{"content":"create_agent {\"agent_id\":\"kid\",\"initial_message\":\"private\"}"}`)
	call("/agent/trusted", "set_permissions", `{"preset":"sandboxed"}`)
	call("/agent/trusted", "set_permissions", `{"blocked_paths":["/etc"],"tools":{"shell": {"mode":"x"}}}`)
	call("/agent/trusted", "set_cwd", `{"cwd":"/none"}`)
	call("/agent/trusted", "set_system_prompt", `{"system_prompt":"private"}`)
	running := r.sendAsync("trusted", api.SendParams{Content: "ask"})
	asked := ""
	for began := time.Now(); asked == ""; asked = gjson.Get(call("/agent/trusted", "get_permissions", `{}`), "result.pending.0.request_id").Str {
		if time.Since(began) > patience {
			t.Fatal("nothing is asked")
		}
	}
	call("/agent/trusted", "respond_permission", `{"request_id":"`+asked+`","decision":"deny","reason":"private"}`)
	<-running
	made := call("/", "create_key", `{"scope":"read","name":"ci","expires_s":3600}`)
	reader := gjson.Get(made, "result.key").Str
	r.post("/", `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"kid"}}`, "Authorization", "Bearer "+reader)
	call("/", "destroy_agent", `{"agent_id":"trusted"}`)
	unnamed := gjson.Get(call("/", "create_agent", `{"disable_tools":["shell"],"env":{"A":"private"},"system_prompt":"private"}`), "result.agent_id").Str
	rotated := gjson.Get(call("/", "rotate_key", `{"grace_s":60}`), "result.key_id").Str

	var got []string
	begun := map[string]int{} // by method
	for _, line := range changes() {
		who := gjson.Get(line, "by.agent").Str
		if key := gjson.Get(line, "by.key").Str; key != "" {
			who = map[bool]string{true: "full", false: gjson.Get(line, "by.key_name").Str}[key == r.key.ID()]
			if gjson.Get(line, "request_id").Str == "" {
				t.Errorf("no request id: %s", line)
			}
		}
		if !gjson.Get(line, "timestamp").Exists() || gjson.Get(line, "message").Str != "audit" {
			t.Errorf("line %s", line)
		}
		if gjson.Get(line, "data.status").Str == "begun" {
			begun[gjson.Get(line, "data.method").Str]++
			continue
		}
		if method := gjson.Get(line, "data.method").Str; gjson.Get(line, "data.code").Int() != -32003 {
			if begun[method]--; begun[method] < 0 {
				t.Errorf("no line before %s", line)
			}
		}
		got = append(got, strings.TrimSpace(fmt.Sprintln(who, gjson.Get(line, "data.method"), gjson.Get(line, "agent"),
			gjson.Get(line, "data.status"), gjson.Get(line, "data.code"), gjson.Get(line, "data.params"), gjson.Get(line, "data.rules"))))
		if strings.Contains(line, "private") || strings.Contains(line, "nxk_") {
			t.Errorf("the audit log shows what it must not: %s", line)
		}
	}
	want := []string{
		`full create_agent  success  {"agent_id":"trusted","preset":"trusted"}`,
		`full create_agent  error -32602 {"agent_id":"trusted"}`,
		`trusted create_agent  success  {"agent_id":"kid"}`,
		`full set_permissions trusted success  {"preset":"sandboxed"}`,
		`full set_permissions trusted error -32602 {} {"blocked_paths":["/etc"],"tools":{"shell":{"mode":"x"}}}`,
		`full set_cwd trusted error -32602 {"cwd":"/none"}`,
		`full set_system_prompt trusted success  {}`,
		`full respond_permission trusted success  {"decision":"deny","request_id":"` + asked + `","tool":"shell"}`,
		`full create_key  success  {"key_id":"` + gjson.Get(made, "result.key_id").Str + `","name":"ci","scope":"read"} {"expires_s":3600}`,
		`ci destroy_agent  error -32003 {"agent_id":"kid"}`,
		`full destroy_agent  success  {"agent_id":"kid"}`, // with its creator
		`full destroy_agent  success  {"agent_id":"trusted"}`,
		`full create_agent  success  {"agent_id":"` + unnamed + `"} {"disable_tools":["shell"]}`,
		`full rotate_key  success  {"key_id":"` + rotated + `"} {"grace_s":60}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// Whoever is limited displaces no line of others by many of its own: neither by refused calls nor
// by good ones, neither with a key nor as an agent, nor by agents that it creates for that.
func TestAuditIsNotDisplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := logfile.OpenTiers(path, logfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(supervisortest.Echo)(r, o)
		o.Audit = log
	})
	r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"a","preset":"trusted"}}`)
	key := func(params string) []string {
		_, made := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":`+params+`}`)
		return []string{"Authorization", "Bearer " + gjson.Get(made, "result.key").Str}
	}
	read, other, own := key(`{"scope":"read","name":"read"}`), key(`{"scope":"read","name":"other"}`), key(`{"scope":"agent","agent_id":"a","name":"own"}`)
	hostCall := func(from, params string) *protocol.HostError {
		_, failure := r.server.HostCall(r.ctx(), supervisor.Caller{AgentID: from}, "create_agent", []byte(params))
		return failure
	}
	if failure := hostCall("a", `{"agent_id":"kid"}`); failure != nil {
		t.Fatal(failure)
	}
	sizes := func() (sizes []int) {
		for _, name := range []string{"audit.jsonl", "audit-limited.jsonl", "audit-excess.jsonl"} {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(data))
		}
		return sizes
	}
	long := `["/` + strings.Repeat("x", 3900) + `"]`
	flood := func(path, method, params string, key []string) {
		call := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		if _, body := r.post(path, "["+call+strings.Repeat(","+call, 49)+"]", key...); len(gjson.Parse(body).Array()) != 50 {
			t.Fatal(body)
		}
	}
	before := sizes()
	for _, c := range []struct {
		name  string
		flood func()
	}{
		{"refused calls of a key", func() {
			for range 5 {
				flood("/", "create_agent", `{"agent_id":"b","name":"`+strings.Repeat("x", 256)+`","allowed_write_paths":`+long+`}`, read)
			}
		}},
		{"good calls of a key", func() { flood("/agent/a", "set_permissions", `{"blocked_paths":`+long+`}`, own) }},
		{"an agent's calls", func() {
			for _, from := range []string{"a", "kid", "a", "kid"} { // which are one principal
				for range 10 {
					if hostCall(from, `{"agent_id":"kid","allowed_write_paths":`+long+`}`) == nil {
						t.Fatal("there are two agents of one name")
					}
				}
			}
		}},
	} {
		c.flood()
		after := sizes()
		if after[0] != before[0] || after[1] > before[1]+logfile.LimitedBytes+1024 || after[2] <= before[2] {
			t.Errorf("%s: the logs had %d bytes and have %d", c.name, before, after)
		}
		before = after
	}
	flood("/", "destroy_agent", `{"agent_id":"kid"}`, other)
	if after := sizes(); after[1] == before[1] || after[2] != before[2] {
		t.Errorf("another key's calls: the logs had %d bytes and have %d", before, after)
	}
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), `"agent_id":"a"`) {
		t.Errorf("%s, %v", data, err)
	}
}

// What is about to be done has a line before it is, so that it has one also if the
// server is killed meanwhile; and agents that roles and plans make have theirs.
func TestAuditOfWhatIsUnderWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := logfile.OpenTiers(path, logfile.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lines := func() []string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			lines = append(lines, fmt.Sprint(
				gjson.Get(line, "by.key_name"), " ", gjson.Get(line, "data.method"), " ", gjson.Get(line, "data.status"), " ",
				regexp.MustCompile("-[0-9a-f]{16}").ReplaceAllString(gjson.Get(line, "data.params.agent_id").Str, "-x"), " ", gjson.Get(line, "data.for"), " ", gjson.Get(line, "data.plan_run_id"),
			))
			if gjson.Get(line, "by.key").Str == "" {
				t.Errorf("nobody did %s", line)
			}
		}
		return lines
	}
	running, stop := make(chan []string, 2), make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		tasks(r, o)
		o.Audit, o.PlansDir = log, t.TempDir()
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: stateful, Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				running <- lines()
				<-stop
				playTask(c, p)
			}}
		}
	})
	answer := make(chan string, 1)
	ask := func(method, params string) {
		_, body := r.post("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
		answer <- body
	}
	go ask("execute_task", `{"task_type":"code_generation","prompt":"x"}`)
	const own = ".task-x" // the rest is by chance
	want := []string{" execute_task begun   ", " create_agent begun " + own + " execute_task ", " create_agent success " + own + " execute_task "}
	if diff := cmp.Diff(want, <-running); diff != "" {
		t.Errorf("while a task is under way (-want +got):\n%s", diff)
	}
	close(stop)
	if got := <-answer; !strings.Contains(got, `"result"`) {
		t.Errorf("the task: %s", got)
	}
	go ask("run_plan", `{"request_id":"p1","pool":{"size":1},"plan":{"tasks":[{"id":"t1","type":"testing","description":"x","dependencies":[],"priority":1}],`+
		`"estimated_time_seconds":1,"explanation":""}}`)
	const worker = ".plan-x-1" // the middle is by chance
	want = append(want, " destroy_agent begun "+own+" execute_task ", " destroy_agent success "+own+" execute_task ",
		" execute_task success   ", " run_plan begun   ",
		" create_agent begun "+worker+" run_plan p1", " create_agent success "+worker+" run_plan p1")
	if diff := cmp.Diff(want, <-running); diff != "" {
		t.Errorf("while a plan is under way (-want +got):\n%s", diff)
	}
	if got := <-answer; !strings.Contains(got, `"result"`) {
		t.Errorf("the plan: %s", got)
	}
	want = append(want, " destroy_agent begun "+worker+" run_plan p1", " destroy_agent success "+worker+" run_plan p1", " run_plan success   p1")
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// A line that cannot be written is in the log, and the request is answered.
func TestAuditLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lost, err := logfile.OpenTiers(filepath.Join(dir, "audit.jsonl"), logfile.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.Audit = lost })
	r.create("a")
	if log := r.logs.String(); !strings.Contains(log, "not audited") || !strings.Contains(log, `\"method\":\"create_agent\"`) {
		t.Errorf("log %s", log)
	}
	if _, body := r.do("GET", "/metrics", nil); !strings.Contains(body, "\nnexus_audit_lines_lost_total 2\n") {
		t.Error("the loss is not counted")
	}
}

// Each HTTP request has a line with its bytes, its status and the key's name.
func TestAccessLog(t *testing.T) {
	r := rigged(t, nil)
	_, made := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"read","name":"ci"}}`)
	reader := gjson.Get(made, "result.key").Str
	for _, c := range []struct {
		name, method, path, body, key string
		want                          string // route, status, http_status, bytes in, the key's name
	}{
		{"call", "POST", "/", list, r.key.Reveal(), "rpc success 200 " + fmt.Sprint(len(list)) + " full"},
		{"named key", "POST", "/rpc", list, reader, "rpc success 200 " + fmt.Sprint(len(list)) + " ci"},
		{"unknown agent", "POST", "/agent/a", list, r.key.Reveal(), "agent error 404 " + fmt.Sprint(len(list)) + " full"},
		{"wrong key", "POST", "/", list, "nxk_wrong", "rpc error 403 0 "},
		{"scrape", "GET", "/metrics", "", reader, "metrics success 200 0 ci"},
		{"no such path", "GET", "/secret-path", "", r.key.Reveal(), "none error 404 0 full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			response, body := r.do(c.method, c.path, strings.NewReader(c.body), "Authorization", "Bearer "+c.key)
			id := response.Header.Get("X-Request-Id")
			line := ""
			for began := time.Now(); line == ""; { // it is written after the answer
				for l := range strings.Lines(r.logs.String()) {
					if gjson.Get(l, "request_id").Str == id && gjson.Get(l, "msg").Str == "http request" {
						line = l
					}
				}
				if time.Since(began) > patience {
					t.Fatal("no line")
				}
			}
			who := gjson.Get(line, "key_name").Str
			if gjson.Get(line, "key").Str == r.key.ID() {
				who = "full"
			}
			data := gjson.Get(line, "data")
			got := fmt.Sprint(data.Get("route"), " ", data.Get("status"), " ", data.Get("http_status"), " ", data.Get("bytes_in"), " ", who)
			if got != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got, c.want, line)
			}
			if n := data.Get("bytes_out").Int(); n < 1 || response.Header.Get("Content-Encoding") == "" && !response.Uncompressed && n != int64(len(body)) {
				t.Errorf("%d bytes answered, %d are there", n, len(body))
			}
			if strings.Contains(line, "secret-path") || strings.Contains(line, "nxk_") {
				t.Errorf("line %s", line)
			}
		})
	}
}

// A scrape shows what was done, under names from fixed sets.
func TestMetrics(t *testing.T) {
	r, _ := watched(t, supervisortest.Echo)
	r.create("a")
	for range 2 {
		if _, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello", RequestID: new("r1")}); err != nil {
			t.Fatal(err)
		}
	}
	const canary = "made-up-name-of-a-stranger"
	r.post("/", `{"jsonrpc":"2.0","id":1,"method":"`+canary+`"}`)
	r.post("/"+canary, list)
	const refused = `nexus_http_requests_total{route="none",status="404"} 1`
	response, body := r.do("GET", "/metrics", nil)
	for deadline := time.Now().Add(patience); !strings.Contains(body, refused) && time.Now().Before(deadline); {
		response, body = r.do("GET", "/metrics", nil) // who was refused is counted once its connection has ended
	}
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("HTTP %d %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	for _, want := range []string{
		`nexus_rpc_duration_seconds_count{code="ok",from="client",method="send"} 2`,
		`nexus_rpc_duration_seconds_count{code="-32601",from="client",method="unknown"} 1`,
		refused, `nexus_http_requests_running{route="metrics"} 1`,
		`nexus_agents{state="ready"} 1`, `nexus_sends_total 1`, `nexus_sends_repeated_total 1`, `nexus_turns_total{outcome="completed"} 1`,
		`nexus_agents_memory_bytes 1.048576e+06`, `nexus_agent_memory_bytes{agent="a"} 1.048576e+06`, `nexus_agents_cpu_seconds_total 1`,
		`nexus_launch_seconds_count 1`, `nexus_launches_total 1`, `nexus_model_requests_running 3`,
		`nexus_build_info{protocol="1",version="test"} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(body, canary) {
		t.Error("what a client makes up is the value of a label")
	}
	if response, _ := r.do("GET", "/metrics", nil, "Authorization", ""); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: HTTP %d", response.StatusCode)
	}
	if response, _ := r.post("/metrics", list); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: HTTP %d", response.StatusCode)
	}
}
