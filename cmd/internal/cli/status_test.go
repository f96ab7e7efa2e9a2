package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
)

// answering answers each method with a result or an error; another method is a failure.
func answering(t *testing.T, answers map[string]string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		answer, ok := answers[gjson.GetBytes(body, "method").Str]
		if err != nil || !ok {
			t.Errorf("was asked for %s: %v", body, err)
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,`+answer+"}")
	}
}

// The status of a failed agent is what the server knows of it: its process is not asked,
// since it would be started.
func TestStatusOfAFailedAgent(t *testing.T) {
	got := run(t, answering(t, map[string]string{
		"list_agents": `"result":{"agents":[{"agent_id":"f","state":"failed","incarnation":6,"restarts":5,"model":"m","permission_level":"trusted",` +
			`"cwd":"/w","message_count":3,"queued":2,"waiting":["s","t"],"request_id":"r","pending_permissions":1,"last_error":"it crashed too often"}]}`,
	}), nil, "status", "f")
	want := `agent         f
state         failed
process       -, incarnation 6, 5 restarts
model         m
preset        trusted
cwd           /w
messages      3
tokens        -
running       r
queued        2
approvals     1
last error    it crashed too often
in the queue  s
in the queue  t
`
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What answers for an agent of another make has one form: its kind and model. One that runs, but whose process is not asked, and one that is saved have it.
func TestModelOfAnotherMake(t *testing.T) {
	running := `{"agent_id":"p","state":"failed","kind":"pipe","model":"x"}`
	saved := `{"name":"p","updated_at":1,"provenance":"user","kind":"pipe","model":"default"}`
	for _, tt := range []struct{ agents, verb, want string }{
		{running, "list", "pipe/x"},
		{running, "status p", "pipe/x"},
		{"", "status p", "pipe/default"},
		{"", "sessions", "pipe/default"},
	} {
		got := run(t, answering(t, map[string]string{
			"list_agents":   `"result":{"agents":[` + tt.agents + `],"count":0}`,
			"list_sessions": `"result":{"total":1,"sessions":[` + saved + `]}`,
		}), nil, strings.Fields(tt.verb)...)
		if got.status != 0 || !slices.Contains(strings.Fields(got.stdout), tt.want) {
			t.Errorf("%s: %+v, want %s", tt.verb, got, tt.want)
		}
	}
}

// An agent whose process does not answer has a status all the same, and the reason.
func TestStatusOfASilentProcess(t *testing.T) {
	got := run(t, answering(t, map[string]string{
		"list_agents": `"result":{"agents":[{"agent_id":"s","state":"ready","pid":7}]}`,
		"get_context": `"error":{"code":-32000,"message":"Execution timeout","data":{"type":"TIMEOUT","details":"it did not answer","recovery_suggestions":["Send it again."]}}`,
	}), nil, "status", "s")
	if got.status != 1 || !strings.Contains(got.stdout, "process     7, ") || got.stderr != "nexus-rpc: Execution timeout: it did not answer\n  Send it again.\n" {
		t.Errorf("got %+v", got)
	}
}

// So it has, soon, where the process stands still.
func TestStatusOfAProcessThatStandsStill(t *testing.T) {
	t.Parallel()
	agents := answering(t, map[string]string{"list_agents": `"result":{"agents":[{"agent_id":"s","state":"busy","pid":7}]}`})
	got := run(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/agent/s" {
			_, _ = io.ReadAll(r.Body) // the end of the connection is seen behind it
			<-r.Context().Done()
			return
		}
		agents(w, r)
	}, nil, "status", "s")
	if got.status != 1 || !strings.Contains(got.stdout, "process     7, ") || got.stderr != "nexus-rpc: the process has not answered within 3s, so this is what the server knows of it\n" {
		t.Errorf("got %+v", got)
	}
}

// The server may not have heard yet from a process that has just started where it works: the
// process itself says so.
func TestStatusOfAProcessThatHasJustStarted(t *testing.T) {
	got := run(t, answering(t, map[string]string{
		"list_agents": `"result":{"agents":[{"agent_id":"n","state":"ready","pid":7}]}`,
		"get_context": `"result":{"cwd":"/w","permission_level":"sandboxed","message_count":3,"model":"m","provider":"p"}`,
		"get_tokens":  `"result":{"total":1}`,
	}), nil, "status", "n")
	for _, line := range []string{"model       p/m\n", "preset      sandboxed\n", "cwd         /w\n", "messages    3\n"} {
		if got.status != 0 || !strings.Contains(got.stdout, line) {
			t.Errorf("got %+v, want the line %q", got, line)
		}
	}
}

// What the server suggests stands below its error, for people, where it says more than
// the error.
func TestSuggestions(t *testing.T) {
	refuse := func(kind string) map[string]string {
		return map[string]string{"get_messages": `"error":{"code":-32001,"message":"Resource unavailable","data":{"type":"` + kind +
			`","details":"the agent has failed","recovery_suggestions":["Call shutdown of the agent.","Or end it."]}}`}
	}
	const bare = "nexus-rpc: Resource unavailable: the agent has failed\n"
	for _, test := range []struct {
		kind, want string
		args       []string
	}{
		{"AGENT_FAILED", bare + "  Call shutdown of the agent.\n  Or end it.\n", []string{"messages", "f"}},
		{"INVALID_PARAMS", bare, []string{"messages", "f"}},
	} {
		got := run(t, answering(t, refuse(test.kind)), nil, test.args...)
		if diff := cmp.Diff(outcome{1, "", test.want}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.args, diff)
		}
	}
}

// What listens says itself what is wrong with how it was called; nothing is said of the key then.
func TestPlainToTLS(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("challenge") == "" {
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"test"}`)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request","data":{"type":"INVALID_REQUEST","details":"this port speaks TLS","recovery_suggestions":["Use https:// in the server's address."]}}}`)
	}))
	t.Cleanup(server.Close)
	var said strings.Builder
	status := cli.New(cli.Options{
		Name: "nexus-rpc", Environ: []string{"NEXUS_HOME=" + t.TempDir(), "NEXUS3_API_KEY=nxk_test"}, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &said,
	}).Run(t.Context(), []string{"--server", server.URL, "list"})
	if got := said.String(); status != 1 || !strings.HasSuffix(got, "this port speaks TLS\n  Use https:// in the server's address.\n") {
		t.Errorf("got %d, %q", status, got)
	}
}

// An agent that does not run is not told to have been stopped.
func TestStopOfAnAgentThatDoesNotRun(t *testing.T) {
	const (
		idle    = "s does not run: the next request to it starts it\n"
		stopped = "stopped s: the next request to it starts it again\n"
	)
	for _, test := range []struct{ agents, sessions, want string }{
		{`{"agent_id":"s","state":"ready","pid":7}`, "", stopped},
		{`{"agent_id":"s","state":"failed"}`, "", stopped},
		{`{"agent_id":"s","state":"stopped"}`, "", idle},
		{"", `{"name":"s"}`, idle},
	} {
		got := run(t, answering(t, map[string]string{
			"list_agents": `"result":{"agents":[` + test.agents + `]}`, "list_sessions": `"result":{"sessions":[` + test.sessions + `],"total":1}`,
			"shutdown": `"result":{"success":true}`,
		}), nil, "stop", "s")
		if got.status != 0 || got.stdout != test.want || got.stderr != "" {
			t.Errorf("%+v: got %+v", test, got)
		}
	}
}

// A key for an agent that there is not is made, and that is told.
func TestKeyOfAnAgentThatThereIsNot(t *testing.T) {
	for agents, want := range map[string]string{
		"":                                 "nexus-rpc: no agent s runs, and none is saved: the key is for one of that name to come\n",
		`{"agent_id":"s","state":"ready"}`: "",
	} {
		got := run(t, answering(t, map[string]string{
			"create_key": `"result":{"key":"nxk_made","key_id":"k"}`, "list_agents": `"result":{"agents":[` + agents + `]}`,
			"list_sessions": `"result":{"sessions":[],"total":0}`,
		}), nil, "keys", "create", "--agent", "s")
		if want := "nexus-rpc: key k, shown only now\n" + want; got.status != 0 || got.stdout != "nxk_made\n" || got.stderr != want {
			t.Errorf("%s: got %+v", agents, got)
		}
	}
}
