package bridge_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/notes"
	"nexus.internal/supervisor"
)

// Nothing that a client or a model says, and no key, may reach the log.
func TestLogKeepsSecrets(t *testing.T) {
	const prompt, canary = "a-very-private-prompt", "nxk_canarycanarycanarycanarycanarycanarycanary"
	r := rigged(t, nil)
	r.create("a")
	if _, err := r.sendStream(r.ctx(), "a", api.SendParams{Content: prompt}, func(string) {}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: prompt, WhenBusy: new(prompt)}); err == nil {
		t.Fatal("a wrong when_busy was taken")
	}
	r.post("/rpc", list, "Authorization", "Bearer "+canary)
	r.post("/rpc?key="+canary, list, "Authorization", "Bearer "+canary)
	r.post("/nothing/"+canary, list)
	r.raw("POST /rpc\r\nAuthorization: Bearer " + canary + "\r\n\r\n")
	log := r.logs.String()
	for _, secret := range []string{prompt, canary, r.key.Reveal()} {
		if strings.Contains(log, secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
	if !strings.Contains(log, "http request") {
		t.Error("nothing was logged")
	}
}

func TestLogLine(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	response, _ := r.post("/agent/a", `{"jsonrpc":"2.0","method":"send","params":{"content":"x"},"id":"id-7"}`)
	lines := r.linesOf(response)
	if len(lines) != 1 {
		t.Fatalf("got %d lines, want 1: %s", len(lines), lines)
	}
	got := gjson.GetMany(lines[0], "msg", "data.method", "data.id", "data.status", "data.http_method", "data.http_status", "data.route", "agent", "incarnation")
	if want := `[http request send "id-7" success POST 200 agent a 1]`; fmt.Sprint(got) != want || !gjson.Get(lines[0], "data.duration_ms").Exists() {
		t.Errorf("got line %s, want %s", lines[0], want)
	}
}

// linesOf are the lines of the log about the request that has that answer, once the
// server has ended: the last of them is written after the answer.
func (r *rig) linesOf(response *http.Response) (lines []string) {
	r.t.Helper()
	r.stop()
	<-r.served
	for line := range strings.Lines(r.logs.String()) {
		if gjson.Get(line, "request_id").Str == response.Header.Get("X-Request-Id") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A request has one line, whatever came of it. The items of a batch have one each
// beside that of the body.
func TestOneLineARequest(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		want             []string // message, level, method, status, code, type, http_status
	}{
		{"an error", "/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"/"}}`, []string{"http request info create_agent error -32602 INVALID_PARAMS 200"}},
		{"no such method", "/", `{"jsonrpc":"2.0","id":1,"method":"x"}`, []string{"http request info x error -32601 METHOD_NOT_FOUND 200"}},
		{"no JSON", "/", `{`, []string{"http request warn  error -32700 PARSE_ERROR 400"}},
		{"a notification", "/", `{"jsonrpc":"2.0","method":"list_agents"}`, []string{"http request info list_agents success   204"}},
		{"no such path", "/x", list, []string{"http request warn  error -32602 NOT_FOUND 404"}},
		{"a batch", "/", `[` + list + `,{"jsonrpc":"2.0"}]`, []string{
			"rpc request info  error -32600 INVALID_REQUEST ", "rpc request info list_agents success   ", "http request info  success   200",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rigged(t, nil)
			response, body := r.post(tt.path, tt.body)
			var got []string
			for _, line := range r.linesOf(response) {
				values := gjson.GetMany(line, "msg", "level", "data.method", "data.status", "data.code", "data.type", "data.http_status")
				got = append(got, strings.Trim(fmt.Sprint(values), "[]"))
			}
			slices.SortStableFunc(got[:max(0, len(got)-1)], strings.Compare)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s\n%s", diff, body)
			}
		})
	}
}

// Requests without a key have few lines in the log; a client's request has its own among
// them.
func TestUnauthenticatedAreCounted(t *testing.T) {
	r := rigged(t, nil)
	for range 30 {
		r.post("/", list, "Authorization", "Bearer nxk_wrong")
	}
	response, _ := r.post("/", list)
	if lines := r.linesOf(response); len(lines) != 1 {
		t.Errorf("a client's request has %d lines, want 1", len(lines))
	}
	if got := strings.Count(r.logs.String(), `"http request"`); got != 21 {
		t.Errorf("%d requests have lines, want 20 and that of the client", got)
	}
	if !strings.Contains(r.logs.String(), `"by_route_and_status":{"rpc 403":10}`) {
		t.Error("the others are not counted")
	}
}

// A key for less and an agent's model have as many lines as they need, and not as many as they
// can make.
func TestLimitedAreCounted(t *testing.T) {
	r := rigged(t, nil)
	_, made := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"read"}}`)
	const call = `{"jsonrpc":"2.0","id":1,"method":"create_agent"}`
	for range 15 {
		r.post("/", "["+call+strings.Repeat(","+call, 49)+"]", "Authorization", "Bearer "+gjson.Get(made, "result.key").Str)
	}
	for range 700 {
		_, _ = r.server.HostCall(r.ctx(), supervisor.Caller{AgentID: "a"}, "nonsense", []byte("{}"))
	}
	response, _ := r.post("/", list)
	if lines := r.linesOf(response); len(lines) != 1 {
		t.Errorf("a client's request has %d lines, want 1", len(lines))
	}
	logs := r.logs.String()
	if got := strings.Count(logs, `"rpc request"`); got != 550 {
		t.Errorf("%d calls of a key for less have lines, want 550", got)
	}
	if got := strings.Count(logs, `"host call"`); got != 600 {
		t.Errorf("%d calls of an agent have lines, want 600", got)
	}
	for _, want := range []string{`"by_route_and_status":{"rpc 200":4}`, `"by_route_and_status":{"host_call error":100}`} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	r := rigged(t, nil)
	whole := bridge.Options{
		Supervisor: r.sup, Sessions: r.sessions, Keys: r.keys, Notes: notes.OpenFile(r.home), Addr: "127.0.0.1:1", Store: noStore{}, Status: figures{},
	}
	if _, err := bridge.New(whole); err == nil {
		t.Error("New takes options without a Runtime")
	}
}
